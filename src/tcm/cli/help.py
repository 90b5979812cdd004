"""The commands: what each is for, an example of it, and how it is told from its options."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tcm.errors import InputError


class Command(NamedTuple):
    """A row of the table of commands."""

    purpose: str
    example: str


COMMANDS = {
    "demo": Command("Compare four methods on the built-in data, in a few minutes on a CPU.", "tcm demo"),
    "data check": Command("Read every image of a data set and report what is wrong.", "tcm data check office-home"),
    "data pack": Command(
        "Decode and resize the images once, so that training starts at once.",
        "tcm data pack --data.root office-home --data.source Art --data.target Clipart",
    ),
    "fit": Command(
        "Both stages in one go: mechanisms, their counterfactuals, the classifier.",
        "tcm fit --data.source-dir photos --data.target-dir cliparts --out runs/mine",
    ),
    "train erm": Command(
        "Train on the labelled source alone: what every other method must beat.",
        "tcm train erm --data.source-dir photos --data.target-dir cliparts --out runs/erm",
    ),
    "train dan": Command(
        "Train with features of equal mean embeddings (Long et al., 2015).",
        "tcm train dan --data.root office-home --data.source Art --data.target Clipart --out runs/a2c-dan",
    ),
    "train dann": Command(
        "Train with domain-adversarial features (Ganin et al., 2016).",
        "tcm train dann --data.root office-home --data.source Art --data.target Clipart --out runs/a2c",
    ),
    "train cdan": Command(
        "Train with adversarial features given the predicted class (Long et al., 2018).",
        "tcm train cdan --data.root office-home --data.source Art --data.target Clipart --out runs/a2c-cdan",
    ),
    "train cdan-e": Command(
        "The same, sure predictions counting more: CDAN+E (Long et al., 2018).",
        "tcm train cdan-e --data.root office-home --data.source Art --data.target Clipart --out runs/a2c-cdan-e",
    ),
    "train mcd": Command(
        "Train two classifiers that disagree and features that make them agree (Saito et al., 2018).",
        "tcm train mcd --data.root office-home --data.source Art --data.target Clipart --out runs/a2c-mcd",
    ),
    "train mdd": Command(
        "Train against a classifier that disagrees on the target by a margin (Zhang et al., 2019).",
        "tcm train mdd --data.root office-home --data.source Art --data.target Clipart --out runs/a2c-mdd",
    ),
    "train tcm": Command(
        "Stage 2: train with the counterfactuals that tcm transport wrote.",
        "tcm train tcm --data.benchmark digits --mechanisms runs/mechanisms --out runs/tcm",
    ),
    "train baseline": Command(
        "Train on source images that one mechanism carried to the target: the paper's Baseline.",
        "tcm train baseline --data.benchmark digits --mechanisms runs/cyclegan --out runs/baseline",
    ),
    "mechanisms": Command(
        "Stage 1: learn k mechanisms that carry images between the domains.",
        "tcm mechanisms --data.benchmark digits --k 4 --out runs/mechanisms",
    ),
    "transport": Command(
        "Write what all mechanisms make of every image of both domains.", "tcm transport runs/mechanisms"
    ),
    "quality": Command(
        "Measure how near the mechanisms carry images to the other domain.",
        "tcm quality runs/mechanisms --backbone.weights resnet50.safetensors",
    ),
    "bench": Command(
        "Run a whole benchmark: tasks x methods x seeds, resumed wherever it stopped, to one table.",
        "tcm bench office-home --root office-home --tasks A2C,R2C --methods erm,dann,tcm --out runs/bench",
    ),
    "table": Command(
        "Print results as the paper's tables do, with the paper's figures beside ours.",
        "tcm table results.csv --benchmark Office-Home --format markdown",
    ),
    "cost": Command(
        "Count multiply-adds and parameters of every method, beside the paper's.",
        "tcm cost --backbone.name resnet50 --classes 65 --k 4",
    ),
    "evaluate": Command("Score a finished run on its target domain.", "tcm evaluate runs/a2c"),
    "predict": Command("Classify a folder of images.", "tcm predict runs/a2c new-images --csv out.csv"),
    "figure mechanisms": Command(
        "Draw images and what every mechanism makes of them, the winner outlined.",
        "tcm figure mechanisms runs/mechanisms --out mechanisms.png",
    ),
    "figure embedding": Command(
        "Draw the features of both domains under two runs, with their proxy A-distances.",
        "tcm figure embedding runs/dann runs/tcm --out embedding.png",
    ),
    "figure activation": Command(
        "Draw where two runs look in target images that one gets right and the other wrong.",
        "tcm figure activation runs/dann runs/tcm --images 6 --out activation.png",
    ),
    "figure accuracy": Command(
        "Draw target accuracy against steps, seeds of a method as one line with a component.",
        "tcm figure accuracy runs/dann-* runs/tcm-* --out accuracy.png",
    ),
    "figure k": Command(
        "Draw target accuracy against the number of mechanisms.", "tcm figure k runs/tcm-k* --out k.png"
    ),
    "report": Command("Write one HTML page about one or more runs.", "tcm report runs/erm runs/a2c --out report"),
}


def split_command(words: list[str]) -> tuple[str, list[str]]:
    """The command's name (one word or two) and its options."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in COMMANDS:
            return name, words[count:]
    group = [name for name in COMMANDS if name.split()[0] == words[0]]
    if group and (len(words) == 1 or words[1] in ("-h", "--help")):
        print_help(group)
        raise SystemExit(0 if len(words) > 1 else 2)
    asked = " ".join(words[:2] if group else words[:1])
    near = difflib.get_close_matches(asked, group or COMMANDS, n=1, cutoff=0.4)
    hint = f'did you mean "tcm {near[0]}"?' if near else "tcm --help lists them"
    raise InputError(f'there is no command "tcm {asked}"; {hint}')


def print_help(names: Sequence[str] = tuple(COMMANDS)) -> None:
    """The commands with purpose and example."""
    console = Console()
    console.print("[bold]tcm[/bold]: train a classifier on labelled images of one domain for another without labels.\n")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name in names:
        table.add_row(f"[bold]tcm {name}[/bold]", COMMANDS[name].purpose)
        table.add_row("", f"[dim]{COMMANDS[name].example}[/dim]")
    console.print(table)
    console.print("\nEvery command explains its options: tcm train dann --help. -q is quiet.", highlight=False)
