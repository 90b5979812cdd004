"""The table of commands: what each is for, an example, and the function behind it. It imports nothing heavy."""

import difflib
from collections.abc import Mapping
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tcm.errors import InputError


class Command(NamedTuple):
    """A row of the table of commands."""

    purpose: str
    example: str
    function: str  # module:function
    adaptive: bool = False  # the function takes a parsed config and returns the command, with defaults that fit it


FOLDERS = "--data.source-dir photos --data.target-dir cliparts"
COMMANDS = {
    "demo": Command(
        "Compare four methods on the built-in data, in a few minutes on a CPU.", "tcm demo", "tcm.cli.demo:demo"
    ),
    "data check": Command(
        "Read every image of a data set and report what is wrong.",
        "tcm data check office-home",
        "tcm.cli.data:check_data",
    ),
    "data pack": Command(
        "Decode and resize the images once, so that training starts at once.",
        "tcm data pack --data.root office-home --data.source Art --data.target Clipart",
        "tcm.cli.data:pack_data",
    ),
    "fit": Command(
        "Run both stages: mechanisms, their counterfactuals, the classifier.",
        f"tcm fit {FOLDERS} --out runs/mine",
        "tcm.cli.train:fit_command",
        adaptive=True,
    ),
    "train": Command(
        "Train one method; tcm train --help lists them.",
        f"tcm train dann {FOLDERS} --out runs/dann",
        "tcm.cli.train:train_command",
        adaptive=True,
    ),
    "mechanisms": Command(
        "Stage 1: learn k mechanisms that carry images between the domains.",
        f"tcm mechanisms {FOLDERS} --k 4 --out runs/mechanisms",
        "tcm.cli.mechanisms:mechanisms_command",
        adaptive=True,
    ),
    "transport": Command(
        "Write the counterfactuals that all mechanisms make of every image.",
        "tcm transport runs/mechanisms",
        "tcm.cli.mechanisms:transport",
    ),
    "quality": Command(
        "Measure how near the mechanisms carry images to the other domain.",
        "tcm quality runs/mechanisms --backbone.weights resnet50.safetensors",
        "tcm.cli.mechanisms:quality",
    ),
    "bench": Command(
        "Run a whole benchmark: tasks x methods x seeds. Repeat it to continue.",
        "tcm bench office-home --root office-home --tasks A2C,R2C --methods erm,dann,tcm --out runs/bench",
        "tcm.cli.bench:bench_command",
        adaptive=True,
    ),
    "table": Command(
        "Print results as the paper's tables do, with the paper's figures beside ours.",
        "tcm table results.csv --benchmark Office-Home --format markdown",
        "tcm.cli.bench:table",
    ),
    "cost": Command(
        "Count multiply-adds and parameters of every method, beside the paper's.",
        "tcm cost --backbone.name resnet50 --classes 65 --k 4",
        "tcm.cli.runs:cost",
    ),
    "evaluate": Command("Score a finished run on its target domain.", "tcm evaluate runs/a2c", "tcm.cli.runs:evaluate"),
    "predict": Command(
        "Classify a folder of images.", "tcm predict runs/a2c new-images --csv out.csv", "tcm.cli.runs:predict"
    ),
    "figure mechanisms": Command(
        "Draw images and their counterfactuals, the winner outlined.",
        "tcm figure mechanisms runs/mechanisms --out mechanisms.png",
        "tcm.cli.figures:mechanisms",
    ),
    "figure embedding": Command(
        "Draw the features of both domains under two runs, with their proxy A-distances.",
        "tcm figure embedding runs/dann runs/tcm --out embedding.png",
        "tcm.cli.figures:embedding",
    ),
    "figure activation": Command(
        "Draw where two runs look in target images that only one of them gets right.",
        "tcm figure activation runs/dann runs/tcm --images 6 --out activation.png",
        "tcm.cli.figures:activation",
    ),
    "figure accuracy": Command(
        "Draw target accuracy against steps; seeds of a method are one line with a band.",
        "tcm figure accuracy runs/dann-* runs/tcm-* --out accuracy.png",
        "tcm.cli.figures:accuracy",
    ),
    "figure k": Command(
        "Draw target accuracy against the number of mechanisms.",
        "tcm figure k runs/tcm-k* --out k.png",
        "tcm.cli.figures:k",
    ),
    "report": Command(
        "Write one HTML page about one or more runs.",
        "tcm report runs/erm runs/a2c --out report",
        "tcm.cli.runs:report",
    ),
}


def split_command(words: list[str]) -> tuple[str, list[str]]:
    """The command's name (one word or two) and its options."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in COMMANDS:
            return name, words[count:]
    group = [name for name in COMMANDS if name.split()[0] == words[0]]
    if group and (len(words) == 1 or words[1] in ("-h", "--help")):
        print_help({name: COMMANDS[name] for name in group})
        raise SystemExit(0 if len(words) > 1 else 2)
    asked = " ".join(words[:2] if group else words[:1])
    raise unknown("command", f"tcm {asked}", [f"tcm {name}" for name in group or COMMANDS], "tcm --help lists them")


def unknown(kind: str, asked: str, names: list[str], otherwise: str) -> InputError:
    """The mistake of a name that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(asked, names, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"?' if near else otherwise
    return InputError(f'there is no {kind} "{asked}"; {hint}')


def print_help(commands: Mapping[str, Command] = COMMANDS) -> None:
    """The commands with purpose and example."""
    console = Console()
    console.print("[bold]tcm[/bold]: train a classifier on labelled images of one domain for another without labels.\n")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, command in commands.items():
        table.add_row(f"[bold]tcm {name}[/bold]", command.purpose)
        table.add_row("", f"[dim]{command.example}[/dim]")
    console.print(table)
    console.print("\nEvery command explains its options: tcm train dann --help. -q is quiet.", highlight=False)
    console.print("Shell completion: tcm --tyro-print-completion bash (or zsh, tcsh).", highlight=False)
