"""Options to a function call, by tyro: the function's signature and docstring define the options and their help."""

import contextlib
import functools
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Union

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from tcm.errors import InputError

TYPES = {"INT": "an integer", "FLOAT": "a number", "INT|{auto}": "an integer or auto"}


REGISTRY = ConstructorRegistry()


@REGISTRY.primitive_rule
def one_or_several(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """How an option with one value or several is read: as one word, which the config takes apart at its commas."""
    kind = next((kind for kind in (str, Path) if info.type == kind | tuple[kind, ...] | None), None)
    if kind is None:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH" if kind is Path else "STR",
        instance_from_str=lambda words: kind(words[0]),
        is_instance=lambda value: value is None or isinstance(value, kind | tuple),
        str_from_instance=lambda value: [",".join(map(str, value)) if isinstance(value, tuple) else str(value)],
    )


def parse(name: str, function: Callable[..., Any], options: list[str]) -> functools.partial[int]:
    """The call of the function that the options ask for. Wrong options are an `InputError`, on one line."""

    @functools.wraps(function)
    def prepared(*arguments: Any, **named: Any) -> functools.partial[int]:
        return functools.partial(function, *arguments, **named)

    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return run_tyro(prepared, prog=f"tcm {name}", args=options)
    except SystemExit as exit:
        if not exit.code:
            raise
        raise InputError(f"{on_one_line(errors.getvalue())}; tcm {name} --help explains the options") from exit


def run_tyro(function: Any, prog: str, args: list[str]) -> Any:
    """What tyro makes of these words, with the same rules for all commands."""
    return tyro.cli(function, prog=prog, args=args, config=(tyro.conf.DisallowNone,), registry=REGISTRY)


def on_one_line(box: str) -> str:
    """The parser's message, which it prints in a box with titled parts, without frame, title and help texts."""
    text = " ".join(re.sub("[│╭╮╰╯]", " ", box).split())
    # A terminal without box-drawing characters gets rows of hyphens.
    _, *parts = [part for part in re.split(" ?(?:─+|-{20,}) ?", text) if part]
    # Similar options come with their whole help; the name of the nearest one is enough.
    similar = r"^(?:Perhaps you meant|Arguments similar to \S+): (--\S+).*"
    parts = [re.sub(similar, r"did you mean \1?", part) for part in parts]
    message = "; ".join(part for part in parts if not part.startswith(("Argument helptext", "For full helptext")))
    message = re.sub(r"invalid literal for int\(\) with base 10: ('.*?')", r"\1 is not an integer", message)
    message = re.sub(r"could not convert string to float: ('.*?')", r"\1 is not a number", message)
    # An option of several types, such as an integer or auto: the parser reports each type that it tried.
    several = r"no type matching (\S+) could be .*? from \[(.*?)\]\. Got errors.*"
    message = re.sub(several, lambda found: f"{found[2]} is not {TYPES.get(found[1], found[1])}", message)
    message = re.sub(r"Error parsing (\S+): is empty", r"\1 is empty", message)
    return message.replace("Error parsing ", "").replace(" (required)", "").rstrip(".")


def print_completion(
    functions: Mapping[str, Callable[..., Any] | Mapping[str, Callable[..., Any]]], shell: str
) -> None:
    """Prints the completion script of a shell for these commands, some of which are groups of commands."""
    commands = {name: group(found) if isinstance(found, Mapping) else found for name, found in functions.items()}
    options = ["--tyro-print-completion", shell]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        run_tyro(subcommands(commands), prog="tcm", args=options)
    for line in printed.getvalue().splitlines():
        print(with_short_texts(line))


def with_short_texts(line: str) -> str:
    """A line of a completion script; the line of all options without ends of lines, which shells take for options."""
    if not line.lstrip().startswith("COMPLETION_SPEC = "):
        return line
    return re.sub(r"\\+n", " ", line).replace(" (default: None)", "")


def subcommands(functions: Mapping[str, Callable[..., Any]]) -> Any:
    """A type whose values are calls of one of the functions."""
    types = (Annotated[Any, tyro.conf.subcommand(name, constructor=f)] for name, f in functions.items())
    return Union[tuple(types)]  # noqa: UP007


def group(functions: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """A function with these subcommands."""

    def chosen(command: Any) -> Any:
        return command

    # Without a name of its own, the group adds no prefix to the options of its commands.
    chosen.__annotations__["command"] = Annotated[subcommands(functions), tyro.conf.arg(name="")]
    return chosen
