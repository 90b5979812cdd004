"""The options of a command as data, read from the help that tyro prints: for the short help and the documentation."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tcm.cli.parser import run_tyro

WIDTH = 100  # columns of the printed help: a wider one has boxes side by side
ARGUMENTS = "positional arguments"  # the title of the group of arguments that have no name


class Option(NamedTuple):
    """An option or an argument."""

    name: str  # with what it takes: --seed INT
    text: str

    @property
    def field(self) -> str:
        """The name alone, as in the library: data.source-dir of --data.source-dir PATH, quiet of -q, --quiet."""
        names = re.findall(r"--([\w.-]+)", self.name)
        return names[0] if names else self.name

    @property
    def required(self) -> bool:
        """Whether the command cannot run without it."""
        return self.text.endswith("(required)")


class Group(NamedTuple):
    """Options that belong together, with a title and what they are about."""

    title: str
    about: str
    options: list[Option]


def option_groups(name: str, function: Callable[..., Any]) -> tuple[str, list[Group]]:
    """What a command does, and all its options."""
    text = printed_help(name, function)
    about = text.partition("╭─")[0].partition("\n\n")[2].strip()
    return about, list(groups(text))


def printed_help(name: str, function: Callable[..., Any]) -> str:
    """The help of the function as tyro prints it, with frames and without colours."""
    # Frames are drawn only where the output says that it can show them.
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            run_tyro(function, prog=f"tcm {name}", args=["--help"])
    finally:
        os.environ.pop("COLUMNS")
        os.environ.update({} if columns is None else {"COLUMNS": columns})
    output.flush()
    return re.sub("\x1b\\[[0-9;]*m", "", output.buffer.getvalue().decode())  # pyright: ignore[reportAttributeAccessIssue]


def groups(text: str) -> Iterator[Group]:
    """The boxes of a printed help."""
    for title, box in re.findall(r"^╭─ (.+?) ─*╮\n(.*?)^╰─", text, flags=re.DOTALL | re.MULTILINE):
        lines = [line.strip("│\n")[1:].rstrip() for line in box.splitlines()]
        rules = [place for place, line in enumerate(lines) if re.fullmatch("─+", line)]
        start = rules[0] + 1 if rules else 0
        yield Group(title, " ".join(lines[: start and start - 1]), options(lines[start:]))


def options(lines: list[str]) -> list[Option]:
    """The options of a box: a name starts at the left edge, its explanation stands to the right or below."""
    found: list[list[str]] = []
    for line in lines:
        if line and not line.startswith(" "):
            name, _, text = line.partition("  ")
            found.append([name, text.strip()])
        elif found and line.strip():
            found[-1][1] += " " + line.strip()
    return [Option(plain_name(name, text), plain_text(text.strip())) for name, text in found if name != "-h, --help"]


def plain_name(name: str, text: str) -> str:
    """The name without the notation of types: INT|{auto} becomes INT or auto. What is off needs no --no-name."""
    name = re.sub(r"\{None\}\||\|\{None\}", "", name)
    name = re.sub(r"\|\{(\w+)\}", r" or \1", name)
    return re.sub(r", --(?:[\w-]+\.)*no-[\w-]+$", "", name) if "(default: False)" in text else name


def plain_text(text: str) -> str:
    """The text without defaults that say nothing: what may be left out says in its text what happens then."""
    text = text.replace(" (default: None)", "").replace(" (default: False)", "")
    return text.replace(" (default: True)", " (default: on)")
