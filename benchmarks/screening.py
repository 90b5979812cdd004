"""Which changes of the default are worth a closer look? Eleven of them in twelve runs.

Single runs on Office-Home differ by up to 1.2 points from one repetition to the next, so trying changes one by one
takes many runs. Here every run has about half of the changes, by the design of Plackett and Burman (1946): the effect
of a change is the mean of the six runs with it minus the mean of the six without. So each effect rests on all twelve
runs, and has a standard error of 0.58 times the standard deviation of a single run. Effects of pairs of changes are
mixed into it. With `--fold` there are twelve more runs, with each change where it was not; both together separate
single changes from pairs.

    python benchmarks/screening.py commands | xargs -P 2 -I {} sh -c {}     the runs; -P at once; repeat to continue
    python benchmarks/screening.py rows                                     their rows into benchmarks/results
    python benchmarks/screening.py table                                    the effects, without any run

This looks at target labels: use it on the development pair or the digits only (docs/results/default.md). By default the
task is the built-in digits. For photographs name the images, the tasks and the length:

    --root office-home --tasks Art,Clipart Clipart,Art --weights resnet50.safetensors
    --options "--steps 2000 --method.rounds 1 --compile on"
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from candidate import CandidateConfig
from rich.console import Console
from rich.table import Table

from tcm.cli.app import main as tcm
from tcm.methods import METHODS
from tcm.results.store import ORIGIN, add_rows, read_table
from tcm.results.store import row as common_row

RESULTS = Path(__file__).parent / "results"
NAME = "candidate"  # the method that these runs train
CHANGES = {
    "learning rate 0.005": "--method.recipe.lr 0.005",
    "weight decay 5e-4": "--method.recipe.weight-decay 5e-4",
    "class confusion 0.5": "--method.confusion 0.5",
    "threshold 0.9": "--method.threshold 0.9",
    "crops of 50 to 100 %": "--data.area 0.5",
    "mixed statistics": "--method.statistics 0.5",
    "mixtures of domains": "--method.mixtures 0.5",
    "clusters": "--method.clusters 0.5",
    "cosine schedule": "--method.schedule cosine",
    "cosine classifier": "--method.head-temperature 0.05",
    "balanced classes": "--method.balance 1",
}
FIRST_RUN = (1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0)  # the others turn it; the last run has no change
SCORES = ("accuracy", "linear classifier")
COLUMNS = ["run", *CHANGES, "benchmark", "task", "seed", *SCORES, "selection", "steps", "seconds", *ORIGIN]


def design(fold: bool) -> dict[str, list[bool]]:
    """The runs by name, and which changes each of them has."""
    rows = [np.roll(FIRST_RUN, shift).tolist() for shift in range(len(FIRST_RUN))] + [[0] * len(FIRST_RUN)]
    runs = {f"{number:02}": [bool(level) for level in row] for number, row in enumerate(rows)}
    return {f"{name}-folded": [not level for level in row] for name, row in runs.items()} if fold else runs


def tasks(arguments: argparse.Namespace) -> dict[str, str]:
    """The options that name the images of each task, by a name for its folders."""
    if arguments.root is None:
        return {"digits": "--data.benchmark digits"}
    pairs = [pair.split(",") for pair in arguments.tasks]
    return {f"{s}-{t}": f"--data.root {arguments.root} --data.source {s} --data.target {t}" for s, t in pairs}


def commands(arguments: argparse.Namespace) -> list[str]:
    """The commands of all runs, both tasks of a run one after the other."""
    weights = f"--backbone.weights {arguments.weights}" if arguments.weights else ""
    found: list[str] = []
    for run, levels in design(arguments.fold).items():
        chosen = [option for option, level in zip(CHANGES.values(), levels, strict=True) if level]
        for task, images in tasks(arguments).items():
            words = [images, weights, arguments.options, *chosen, f"--seed {arguments.seed}"]
            out = arguments.out / task / f"{run}-s{arguments.seed}"
            found.append(" ".join([f"{sys.executable} {__file__} run", *filter(None, words), f"--out {out}"]))
    return found


def rows(out: Path) -> list[dict[str, str]]:
    """The rows of all runs that are finished."""
    return [row(file.parent) for file in sorted(out.glob("*/*/evaluation.json"))]


def row(folder: Path) -> dict[str, str]:
    """The row of a run: which changes it has, and its accuracies in %."""
    run = folder.name.rsplit("-s", 1)[0]
    levels = design("folded" in run)[run]
    found = common_row(folder)
    variants = json.loads((folder / "evaluation.json").read_text())["target"]["variants"]
    linear = variants.get("linear classifier", {}).get("accuracy")
    changes = {name: str(int(level)) for name, level in zip(CHANGES, levels, strict=True)}
    found |= {"run": run, **changes, "linear classifier": "" if linear is None else f"{100 * linear:.2f}"}
    return {name: found[name] for name in COLUMNS}


def effects(read: list[dict[str, str]], task: str, score: str) -> tuple[np.ndarray, np.ndarray]:
    """The effect of each change in points, and its standard error, by least squares; the task's runs of all seeds.

    The error is that of the residuals where there are more runs than changes, otherwise not a number.
    """
    some = [row for row in read if row["task"] == task and row[score]]
    levels = np.array([[1.0, *(float(row[name]) for name in CHANGES)] for row in some])
    accuracies = np.array([float(row[score]) for row in some])
    found, *_ = np.linalg.lstsq(levels, accuracies, rcond=None)
    spare = len(some) - np.linalg.matrix_rank(levels)
    variance = ((accuracies - levels @ found) ** 2).sum() / spare if spare else np.nan
    covariance = variance * np.linalg.pinv(levels.T @ levels)
    return found[1:], np.sqrt(np.diag(covariance))[1:]


def table(file: Path) -> Table:
    """The effects on each task, and their mean over the tasks, the best first."""
    read = read_table(file, COLUMNS)
    names = list(dict.fromkeys(row["task"] for row in read))
    found = {name: effects(read, name, "accuracy") for name in names}
    mean = np.mean([effect for effect, _ in found.values()], axis=0)
    title = "Target accuracy with a change minus without it, in points, last iterate ± standard error"
    out = Table("", *names, *(["mean"] if len(names) > 1 else []), title=title)
    for number in np.argsort(-mean):
        cells = [f"{effect[number]:+.2f} ± {error[number]:.2f}" for effect, error in found.values()]
        out.add_row(list(CHANGES)[number], *cells, *([f"{mean[number]:+.2f}"] if len(names) > 1 else []))
    counts = [str(sum(row["task"] == name for row in read)) for name in names]
    out.add_row("runs", *counts, *([""] if len(names) > 1 else []))
    return out


def main() -> None:
    METHODS[NAME] = CandidateConfig
    if sys.argv[1:2] == ["run"]:
        sys.exit(tcm(["train", NAME, *sys.argv[2:]]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("commands", "rows", "table"))
    parser.add_argument("--fold", action="store_true", help="the runs with each change where it was not")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/screening"), help="folder of the runs")
    parser.add_argument("--to", type=Path, default=RESULTS / "digits-screening.csv", help="CSV of the rows")
    parser.add_argument("--root", type=Path, help="folder of domains; default: the built-in digits")
    parser.add_argument("--tasks", nargs="+", default=["Art,Clipart", "Clipart,Art"], help="SOURCE,TARGET of each")
    parser.add_argument("--weights", type=Path, help="file of a pretrained backbone")
    parser.add_argument("--options", default="--steps 600", help="more options of tcm train")
    arguments = parser.parse_args()
    if arguments.what == "commands":
        print(*commands(arguments), sep="\n")
        return
    if arguments.what == "rows":
        add_rows(arguments.to, rows(arguments.out), COLUMNS, ("run", "task", "seed"))
    Console(width=120).print(table(arguments.to))


if __name__ == "__main__":
    main()
