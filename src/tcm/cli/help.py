"""The list of commands that `tcm --help` prints. It imports nothing heavy."""

import difflib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tcm.errors import InputError


class Command(NamedTuple):
    """A row of the table of commands."""

    purpose: str
    example: str
    function: str  # module:function
    # The default values depend on other options. Then `function` returns the command: it is called with `arguments`
    # and the arguments parsed so far, by name, or None.
    adaptive: bool = False
    arguments: tuple[str, ...] = ()


def print_help(commands: Mapping[str, Command]) -> None:
    """Prints each command with its purpose and an example."""
    console = Console()
    console.print(
        "[bold]tcm[/bold]: train a classifier with labelled images of one domain, for another domain without labels.\n"
    )
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, command in commands.items():
        table.add_row(f"[bold]tcm {name}[/bold]", escape(command.purpose))
        if command.example:
            table.add_row("", f"[dim]{command.example}[/dim]")
    console.print(table)
    for line in (
        "",
        "tcm train dann --help explains the options of a command. -q turns the progress display off.",
        "tcm --version prints the version; tcm --tyro-print-completion bash (or zsh, tcsh) a completion script.",
    ):
        console.print(line, highlight=False)


def unknown_command(program: str, word: str, known: Iterable[str]) -> InputError:
    """The error for a word that is not a command of a program (tcm, tcm train), with the nearest one that is."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    hint = f'did you mean "{program} {near[0]}"?' if near else f"{program} --help lists the commands"
    return InputError(f'there is no command "{program} {word}"; {hint}')
