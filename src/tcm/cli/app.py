"""The command line: words to a call of the library, and errors to one line."""

import contextlib
import functools
import importlib
import io
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tcm import __version__
from tcm.cli.help import COMMANDS, print_help, split_command, unknown
from tcm.errors import FIELD, InputError, Interrupted, printable

Call = Callable[[], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code: 0 done, 1 problems found, 2 bad input, 128 + n stopped by signal n."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print_help()
        return 0
    if words[0] == "--version":
        print(f"tcm {__version__}")
        return 0
    try:
        if words[0].startswith("--tyro-"):
            return print_completion(words)
        return run_command(*split_command(words))
    except InputError as error:
        print(f"error: {with_options(error)}", file=sys.stderr)
        return 2
    except Interrupted as stopped:
        print(printable(stopped), file=sys.stderr)
        return 128 + stopped.signal_number
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        print("stopped; repeat the command to continue", file=sys.stderr)
        return 128 + signal.SIGINT


def with_options(message: object) -> str:
    """The message on one line; fields that it mentions become options.

    `data.on_bad_image=skip` becomes --data.on-bad-image skip, `backbone.pretrained=False` --backbone.no-pretrained.
    """
    return FIELD.sub(lambda found: option(found[1], found[2]), printable(message))


def option(field: str, value: str | None = None) -> str:
    """The option of a field, with its value if there is one."""
    name = field.replace("_", "-")
    if value in ("True", "False"):
        group, dot, last = name.rpartition(".")
        return f"--{name}" if value == "True" else f"--{group}{dot}no-{last}"
    return f"--{name} {value}" if value else f"--{name}"


def run_command(name: str, options: list[str]) -> int:
    """Parses the options and calls the command."""
    call = parsed_call(name, ["--quiet" if word == "-q" else word for word in options])
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        # Pillow's remarks on damaged metadata and large images name no file; unusable images are reported by name.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.showwarning = warning_lines()
        return call()


def parsed_call(name: str, options: list[str]) -> Call:
    """The call that these options ask for."""
    command, function = COMMANDS[name], implementation(name)
    if name == "train":
        method, *options = chosen_method(options)
        name, function = f"train {method}", functools.partial(function, method)
    require_out(options)
    if not command.adaptive:
        return parse(name, function, options, positional=not name.startswith(("demo", "data ")))
    # The defaults of some options depend on others: small images have small networks. So the options are parsed with
    # the usual defaults first, and then with those that fit what was given.
    found = parse(name, function(None), options).keywords
    given = (found["benchmark"], found["config"]) if name == "bench" else found["config"]
    return parse(name, function(given), options)


def implementation(name: str) -> Callable[..., Any]:
    """The function behind a command. Imported only now, because torch takes seconds to load."""
    module, function = COMMANDS[name].function.split(":")
    return getattr(importlib.import_module(module), function)


def chosen_method(words: list[str]) -> list[str]:
    """The words after `tcm train`, whose first one is a method."""
    from tcm.cli.train import print_methods
    from tcm.methods import METHODS

    if not words or words[0] in ("-h", "--help"):
        print_methods()
        raise SystemExit(0 if words else 2)
    if words[0] not in METHODS:
        raise unknown("method", words[0], list(METHODS), f"there are {', '.join(METHODS)}")
    return words


def require_out(options: list[str]) -> None:
    """An error for an empty `out`, which would be the current folder."""
    if ("--out", "") in pairwise(part for word in options for part in word.split("=", 1)):
        raise InputError("out", "is empty; name a place for the results")


def parse(
    name: str, function: Callable[..., Any], options: list[str], positional: bool = False
) -> functools.partial[int]:
    """The call of the function with these options; what cannot be parsed is one line, like every other mistake.

    `positional`: required arguments have no option names.
    """
    import tyro

    @functools.wraps(function)
    def prepared(*arguments: Any, **named: Any) -> functools.partial[int]:
        return functools.partial(function, *arguments, **named)

    config, complaint = (tyro.conf.PositionalRequiredArgs,) if positional else (), io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(prepared, prog=f"tcm {name}", args=options, config=config)
    except SystemExit as ended:
        if not ended.code:
            raise
        raise InputError(f"{on_one_line(complaint.getvalue())}; tcm {name} --help explains the options") from ended


def on_one_line(boxed: str) -> str:
    """The parser's message, which it prints in a box of titled parts, without frame, title and help texts."""
    text = " ".join(re.sub("[│╭╮╰╯]", " ", boxed).split())
    # Where the terminal has no lines to draw with, there are rows of hyphens.
    _, *parts = [part for part in re.split(" ?(?:─+|-{20,}) ?", text) if part]
    said = "; ".join(part for part in parts if not part.startswith(("Argument helptext", "For full helptext")))
    said = re.sub(r"invalid literal for int\(\) with base 10: ('.*?')", r"\1 is not an integer", said)
    said = re.sub(r"could not convert string to float: ('.*?')", r"\1 is not a number", said)
    # Where several types are possible, such as a number or none, the parser reports each that it tried.
    several = r"no type matching (?:\{None\}\|)?(\S+) could be .*? from \[(.*?)\]\. Got errors.*"
    said = re.sub(several, lambda found: f"{found[2]} is not {TYPES.get(found[1], f'one of {found[1]}')}", said)
    return said.replace("Error parsing ", "").replace(" (required)", "").rstrip(".")


TYPES = {"INT": "an integer", "FLOAT": "a number"}


def warning_lines() -> Callable[..., None]:
    """Shows each warning as one line, and none twice: the tasks of a suite share their domains."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if (line := with_options(message)) not in seen:
            seen.add(line)
            print(f"warning: {line}", file=sys.stderr)

    return show


def print_completion(words: list[str]) -> int:
    """The completion script of all commands for a shell, as tyro writes it."""
    import tyro

    tyro.cli(whole_app(), prog="tcm", args=words)
    return 0


def whole_app() -> Any:
    """All commands as one type with subcommands."""
    from typing import Annotated, Union

    import tyro

    from tcm.methods import METHODS

    def subcommands(functions: dict[str, Any]) -> Any:
        kinds = (Annotated[Any, tyro.conf.subcommand(name, constructor=f)] for name, f in functions.items())
        return Union[tuple(kinds)]  # noqa: UP007

    def group(functions: dict[str, Any]) -> Callable[..., Any]:
        def chosen(command: Any) -> Any:
            return command

        chosen.__annotations__["command"] = subcommands(functions)
        return chosen

    functions: dict[str, Any] = {}
    for name, command in COMMANDS.items():
        first, _, rest = name.partition(" ")
        function = implementation(name)
        if name == "train":
            functions[name] = group({method: function(method, None) for method in METHODS})
        elif rest:
            inner = {other.split()[1]: implementation(other) for other in COMMANDS if other.startswith(f"{first} ")}
            functions[first] = group(inner)
        else:
            functions[name] = function(None) if command.adaptive else function
    return subcommands(functions)
