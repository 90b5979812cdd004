"""Sphinx extension: writes one page per command, from the help that the program itself prints.

The help comes from the dataclasses that hold the options, so these pages cannot differ from the program. They are
written to docs/reference/commands before every build, and git ignores them.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

NARROW = 80  # letters of an example that fit into a line of the page


class Page(NamedTuple):
    """A command."""

    name: str  # without tcm: train dann
    purpose: str
    example: str


def escaped(text: str) -> str:
    """The text as Markdown; names in backticks stay code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_<>\[\]{}#$])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def command_page(page: Page) -> str:
    """The page of one command, in Markdown."""
    from tcm.cli.app import function_of, split_command
    from tcm.cli.options import option_groups

    _, command, _ = split_command(page.name.split())
    about, groups = option_groups(page.name, function_of(command))
    example = page.example if len(page.example) < NARROW else page.example.replace(" --", " \\\n  --")
    parts = [f"# tcm {page.name}", escaped(about), f"```sh\n{example}\n```"]
    parts.append(f"```{{program}} tcm {page.name}\n```")
    for group in groups:
        parts += [f"## {group.title[0].upper()}{group.title[1:]}", escaped(group.about)]
        for option in group.options:
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
            "`tcm train dann --help` explains the options of one that matter, `--help-all` every option.",
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
    from tcm.cli.app import COMMANDS, commands_of

    found = {name: COMMANDS[name] for name in COMMANDS if name != "train"} | commands_of("train")
    return [Page(name, command.purpose, command.example) for name, command in found.items()]


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
