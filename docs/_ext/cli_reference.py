"""Sphinx extension: writes one page per command, from the help that the program itself prints.

`tcm NAME --help` comes from the dataclasses that hold the options, so these pages cannot differ from the program. They
are written to docs/reference/commands before every build, and git ignores them.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

WIDTH = 100  # columns of the printed help: above 160 it has several columns
NARROW = 80  # letters of an example that fit into a line of the page


class Page(NamedTuple):
    """A command."""

    name: str  # without tcm: train dann
    purpose: str
    example: str


class Option(NamedTuple):
    """An option or an argument."""

    name: str  # with what it takes: --seed INT
    text: str


class Group(NamedTuple):
    """A box of the printed help."""

    title: str
    about: str
    options: list[Option]


def printed_help(name: str) -> str:
    """What `tcm NAME --help` prints."""
    from tcm.cli.app import main

    # Frames are drawn only where the output says that it can show them.
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            main([*name.split(), "--help"])
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
    # What may be left out says in its text what happens then.
    return [Option(name.replace("{None}|", ""), text.replace("(default: None)", "").strip()) for name, text in found]


def escaped(text: str) -> str:
    """The text as Markdown; names in backticks stay code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_<>\[\]{}#$])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def described(text: str) -> str:
    """What a printed help says before its boxes, without the line of usage."""
    return text.partition("╭─")[0].partition("\n\n")[2].strip()


def command_page(page: Page) -> str:
    """The page of one command, in Markdown."""
    text = printed_help(page.name)
    example = page.example if len(page.example) < NARROW else page.example.replace(" --", " \\\n  --")
    parts = [f"# tcm {page.name}", escaped(described(text)), f"```sh\n{example}\n```"]
    parts.append(f"```{{program}} tcm {page.name}\n```")
    for group in groups(text):
        parts += [f"## {group.title[0].upper()}{group.title[1:]}", escaped(group.about)]
        for option in group.options:
            if option.name != "-h, --help":
                parts.append(f":::{{option}} {option.name}\n{escaped(option.text)}\n:::")
    return "\n\n".join(part for part in parts if part) + "\n"


def overview(pages: list[Page]) -> str:
    """The page that lists the commands."""
    rows = [f"| [tcm {page.name}]({file_name(page.name)}) | {escaped(page.purpose)} |" for page in pages]
    entries = "\n".join(f"{page.name} <{file_name(page.name)}>" for page in pages)
    return "\n".join(
        [
            "# Commands",
            "",
            "These pages are built from the program's own help. `tcm --help` lists the commands, and",
            "`tcm train dann --help` explains the options of one.",
            "",
            "| command | what it does |",
            "|---|---|",
            *rows,
            "",
            f"```{{toctree}}\n:hidden:\n\n{entries}\n```",
            "",
        ]
    )


def all_pages() -> list[Page]:
    """The commands of the program; `tcm train` is one per method."""
    from tcm.cli.app import COMMANDS
    from tcm.cli.train import purpose_of
    from tcm.methods import METHODS

    pages = []
    for name, command in COMMANDS.items():
        if name != "train":
            pages.append(Page(name, command.purpose, command.example))
            continue
        for method, config in METHODS.items():
            needed = " --mechanisms runs/mechanisms" if config.uses_counterfactuals else ""
            example = command.example.replace("dann", method).replace(" --out", f"{needed} --out")
            pages.append(Page(f"train {method}", purpose_of(method), example))
    return pages


def file_name(name: str) -> str:
    """The page of a command: train-dann.md."""
    return name.replace(" ", "-") + ".md"


def write_pages(app: Any) -> None:
    """Writes the pages that changed, and removes those of commands that are gone."""
    folder = Path(app.srcdir) / "reference" / "commands"
    folder.mkdir(exist_ok=True)
    found = all_pages()
    pages = {file_name(page.name): command_page(page) for page in found} | {"index.md": overview(found)}
    for old in set(folder.glob("*.md")) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


def setup(app: Any) -> dict[str, bool]:
    """Writes the pages before Sphinx looks for them."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
