"""What `tcm`, `tcm help` and `--help` print. It imports nothing heavy."""

import difflib
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.text import Text

from tcm.errors import InputError

if TYPE_CHECKING:
    from tcm.cli.options import Group, Option

SHOWN = 10  # options in the short help of a command
COLUMN = 26  # where the text of an option starts
# The options that matter, the most important first: the short help of a command has the first of those that it knows.
MATTER = (
    *("out", "data.source-dir", "data.target-dir", "root", "tasks", "methods", "compare", "frozen", "n", "csv"),
    *("probabilities", "steps", "k", "seeds", "batch", "seed", "mechanisms", "backbone.weights", "backbone.name"),
    *("data.size", "device", "quiet"),
)
GROUPS = {
    "train": "Train one method; tcm train --help lists the methods.",
    "figure": "Draw a figure of finished runs; tcm figure --help lists them.",
}
FIRST = ("tcm demo", "tcm fit photos cliparts", "tcm predict runs/photos-to-cliparts new-images")


class Command(NamedTuple):
    """A row of the table of commands."""

    purpose: str
    example: str
    function: str  # module:function
    # The default values depend on other options. Then `function` returns the command: it is called with `arguments`
    # and the arguments parsed so far, by name, or None.
    adaptive: bool = False
    arguments: tuple[str, ...] = ()


def print_overview(commands: Mapping[str, Command]) -> None:
    """Prints `tcm help`: examples, then a line for each command; the commands of a group share one."""
    rows: dict[str, str] = {}
    for name, command in commands.items():
        group = name.split()[0]
        rows[f"tcm {group} NAME" if group in GROUPS else f"tcm {name}"] = GROUPS.get(group, command.purpose)
    title = "tcm trains an image classifier for images without labels, from labelled images of another domain."
    lines = [*map(Text, textwrap.wrap(title, width())), Text(), *(Text(f"  {example}") for example in FIRST), Text()]
    lines += listed(rows)
    more = "tcm help COMMAND explains a command; --help-all after it explains every option."
    others = "tcm --version prints the version; tcm completion SHELL prints a script for bash, zsh or fish."
    lines += [Text(), *map(Text, textwrap.wrap(more, width())), *map(Text, textwrap.wrap(others, width()))]
    show(lines)


def print_group(name: str, commands: Mapping[str, Command]) -> None:
    """Prints the commands of a group, one line each."""
    lines = [Text(GROUPS.get(name, f"The commands of tcm {name}.").split(";")[0].rstrip(".") + ":"), Text()]
    lines += listed({f"tcm {command}": found.purpose for command, found in commands.items()}, cut=True)
    show([*lines, Text(), Text(f"tcm help {next(iter(commands))} explains one.")])


def listed(rows: Mapping[str, str], cut: bool = False) -> list[Text]:
    """One line for each name and the first sentence about it; longer ones are cut, or wrapped."""
    indent = max(map(len, rows)) + 2
    lines: list[Text] = []
    for name, about in rows.items():
        first, *more = textwrap.wrap(re.split(r"(?<=\.) +(?=[A-Z])", about)[0], max(width() - indent, 30))
        text = shortened(f"{first} {more[0]}", width() - indent) if more and cut else first
        lines.append(Text.assemble((f"{name:{indent}}", "bold"), text))
        lines += [] if cut else [Text(" " * indent + line) for line in more]
    return lines


def shortened(text: str, most: int) -> str:
    """The text, cut to that many letters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def print_command_help(name: str, example: str, about: str, groups: "Sequence[Group]", everything: bool) -> None:
    """Prints what a command does, how it is called, and its options: ten of them, or everything."""
    from tcm.cli.options import ARGUMENTS

    arguments = [option for group in groups if group.title == ARGUMENTS for option in group.options]
    named = [group for group in groups if group.title != ARGUMENTS]
    every = [option for group in named for option in group.options]
    called = [option.name for option in (*arguments, *every) if option.required or option in arguments]
    usage = f"usage: {' '.join(['tcm', name, *called])} [options]"
    lines = [Text(line) for line in textwrap.wrap(usage, width(), subsequent_indent="         ")]
    for paragraph in about.split("\n\n"):
        lines += [Text(), *map(Text, textwrap.wrap(paragraph, width()))]
    lines += [Text(), Text("example:"), *example_lines(example)] if example else []
    lines += section("arguments", "", [option._replace(text=without_required(option.text)) for option in arguments])
    if everything:
        for group in named:
            lines += section(group.title, group.about, group.options)
        return show(lines)
    placed = {f"data.{argument.name.lower()}-dir" for argument in arguments}  # SOURCE in place of --data.source-dir
    shown = important([option for option in every if option.field not in placed])
    lines += section("options", "", [option._replace(text=brief(option.text)) for option in shown])
    if (more := len(every) - len(shown)) or any(brief(option.text) != option.text for option in shown):
        count = f"{more} more options" if more > 1 else "one more option"
        left = f"explains {count}" if more else "has the full texts"
        lines += [Text(), Text(f"tcm {name} --help-all {left}.")]
    return show(lines)


def important(options: "Sequence[Option]") -> "list[Option]":
    """The options that matter, at most SHOWN: what is required, then those of MATTER, then the first others."""
    if len(options) <= SHOWN:
        return list(options)
    ranked = [option for option in options if option.required]
    ranked += [option for name in MATTER for option in options if option.field == name]
    return list(dict.fromkeys([*ranked, *options]))[:SHOWN]


def brief(text: str) -> str:
    """The first sentence, and what is the default or required."""
    first, *rest = re.split(r"(?<=\.) +", text)
    return " ".join([first, *(part for part in rest if part.startswith(("Default:", "(default", "(required")))])


def without_required(text: str) -> str:
    """The text of an argument, which stands in the line of usage."""
    return text.removesuffix("(required)").rstrip()


def section(title: str, about: str, options: "Sequence[Option]") -> list[Text]:
    """A titled list of options, after an empty line; nothing without options."""
    if not options:
        return []
    lines = [Text(), *map(Text, textwrap.wrap(f"{title}: {about}".rstrip(" "), width()))]
    for option in options:
        texts = textwrap.wrap(option.text, max(width() - COLUMN, 30)) or [""]
        start = f"  {option.name}"
        first = texts.pop(0) if len(start) < COLUMN - 1 else ""
        lines.append(Text.assemble((f"{start:{COLUMN}}" if first else start, "bold"), first))
        lines += [Text(" " * COLUMN + line) for line in texts]
    return lines


def example_lines(example: str) -> list[Text]:
    """The example; a long one is broken as in a shell."""
    words = example.replace(" --", "\0--").split("\0")
    lines = ["  " + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) + 3 <= width():
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(f"    {word}")
    return [Text(line) for line in lines]


def width() -> int:
    """Columns of the terminal, 100 at most."""
    return min(Console().width, 100)


def show(lines: Iterable[Text]) -> None:
    """Prints the lines."""
    console = Console(highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True)


def unknown_command(program: str, word: str, known: Iterable[str]) -> InputError:
    """The error for a word that is not a command of a program (tcm, tcm train), with the nearest one that is."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    hint = f'did you mean "{program} {near[0]}"?' if near else f"{program} --help lists the commands"
    return InputError(f'there is no command "{program} {word}"; {hint}')
