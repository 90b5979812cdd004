"""The ablation of the default TCM: each term left out, other mechanisms, other shares of counterfactuals.

    python benchmarks/ablation.py stage1 | sh                       stage 1, once per seed
    python benchmarks/ablation.py stage2 | xargs -P 2 -I {} sh -c {}    stage 2; -P runs at once
    python benchmarks/ablation.py rows                              their rows into benchmarks/results
    python benchmarks/ablation.py table                             the table, without any run

The first two print commands, one per line, those of seed 0 first; what is finished is not trained again. Seeds of stage
2 have mechanisms of their own, so that the spread over seeds includes stage 1. By default the task is the built-in
digits. For photographs name the images, the task and the length:

    --root office-home --source Art --target Clipart --weights resnet50.safetensors --options "--steps 3000"
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tcm.results.identity import grouped, spread
from tcm.results.store import ORIGIN, add_rows, read_table
from tcm.results.store import row as common_row

RESULTS = Path(__file__).parent / "results"
SEEDS = range(3)
VARIANTS = ("linear classifier", "average")  # other ways to predict, by the same runs
COLUMNS = [
    *("form", "benchmark", "task", "method", "k", "seed", "accuracy", *VARIANTS),
    *("mechanisms_used", "selection", "steps", "seconds", *ORIGIN),
]

STAGE1 = {
    "k4": "--k 4",
    "k1": "--k 1",
    "k2": "--k 2",
    "k8": "--k 8",
    "random": "--k 4 --bank.assignment random",
    "untrained": "--k 4 --steps 1",
}


class Form(NamedTuple):
    """A row of the table."""

    mechanisms: str | None = "k4"
    options: str = ""


FORMS = {
    "tcm": Form(),
    "tcm-control": Form(None),
    "counterfactuals of source images only": Form(options="--method.counterfactuals-of source"),
    "counterfactuals of target images only": Form(options="--method.counterfactuals-of target"),
    "all strong views from counterfactuals": Form(options="--method.counterfactuals 1"),
    "no labels on source images": Form(options="--method.weak 0 --method.strong 1"),
    "no labels on strong views": Form(options="--method.weak 1 --method.strong 0"),
    "no class confusion": Form(options="--method.confusion 0"),
    "no pseudo-labels": Form(options="--method.pseudo-labels 0"),
    "threshold 0.8": Form(options="--method.threshold 0.8"),
    "k = 1": Form("k1"),
    "k = 2": Form("k2"),
    "k = 8": Form("k8"),
    "random assignment": Form("random"),
    "all mechanisms": Form(options="--method.no-only-useful"),
    "untrained mechanisms": Form("untrained", "--method.no-only-useful"),
}


def folder_name(form: str, seed: int) -> str:
    """The name of a run's folder."""
    return f"{form.replace(' = ', '').replace(' ', '-')}-s{seed}"


def commands(arguments: argparse.Namespace) -> list[str]:
    """The commands of one stage."""
    data, out = data_options(arguments), arguments.out
    found: list[str] = []
    for seed in SEEDS:
        for name, options in STAGE1.items() if arguments.what == "stage1" else ():
            run = out / "mechanisms" / f"{name}-s{seed}"
            train = f"tcm mechanisms {data} {arguments.stage1} {options} --seed {seed} --out {run}"
            found.append(f"{train} && tcm transport {run}")
        for name, form in FORMS.items() if arguments.what == "stage2" else ():
            method = "tcm" if form.mechanisms else "tcm-control"
            given = f"--mechanisms {out}/mechanisms/{form.mechanisms}-s{seed}" if form.mechanisms else ""
            words = [f"tcm train {method}", data, backbone(arguments), form.options, arguments.options, given]
            found.append(" ".join([*filter(None, words), f"--seed {seed} --out {out}/{folder_name(name, seed)}"]))
    return found


def data_options(arguments: argparse.Namespace) -> str:
    """The options that name the images."""
    if arguments.root is None:
        return "--data.benchmark digits"
    return f"--data.root {arguments.root} --data.source {arguments.source} --data.target {arguments.target}"


def backbone(arguments: argparse.Namespace) -> str:
    """The options of the network."""
    return f"--backbone.weights {arguments.weights}" if arguments.weights else ""


def rows(out: Path) -> list[dict[str, str]]:
    """The rows of all runs that are finished."""
    found: list[dict[str, str]] = []
    for name in FORMS:
        for seed in SEEDS:
            folder = out / folder_name(name, seed)
            if (folder / "evaluation.json").exists():
                found.append(row(name, folder))
    return found


def row(form: str, folder: Path) -> dict[str, str]:
    """The row of a run. `mechanisms_used` are those for source and for target images, after the judgement."""
    target = json.loads((folder / "evaluation.json").read_text())["target"]
    variants = {name: f"{100 * found['accuracy']:.2f}" for name, found in target["variants"].items()}
    judged, used = folder / "mechanisms.json", ""
    if judged.exists():
        used_on = [one["origin"] for one in json.loads(judged.read_text())["verdicts"] if not one["reasons"]]
        used = f"{used_on.count('source')} + {used_on.count('target')}"
    found = {**common_row(folder), "form": form, "mechanisms_used": used}
    return {name: variants.get(name, "") if name in VARIANTS else found[name] for name in COLUMNS}


def table(file: Path) -> Table:
    """Mean and sample standard deviation over seeds, and the paired difference to the default."""
    read = read_table(file, COLUMNS)
    groups = grouped(read, ((row["task"], row["form"]) for row in read))
    title = "last iterate, %: mean ± sample standard deviation over seeds"
    out = Table("task", "", "accuracy", "minus tcm, same seeds", *VARIANTS, "mechanisms used", "seeds", title=title)
    whole = {(row["task"], row["seed"]): float(row["accuracy"]) for row in read if row["form"] == "tcm"}
    for (task, name), some in groups.items():
        pairs = [(whole.get((one["task"], one["seed"])), float(one["accuracy"])) for one in some]
        differences = [found - default for default, found in pairs if default is not None]
        others = [[float(one[column]) for one in some if one[column]] for column in VARIANTS]
        used = ", ".join(one["mechanisms_used"] for one in some if one["mechanisms_used"])
        accuracies = [float(one["accuracy"]) for one in some]
        cells = [spread(values).text() if values else "" for values in (accuracies, differences, *others)]
        out.add_row(task, name, *cells, used, str(len(some)))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("stage1", "stage2", "rows", "table"))
    parser.add_argument("--out", type=Path, default=Path("runs/ablation"), help="folder of the runs")
    parser.add_argument("--to", type=Path, default=RESULTS / "digits-ablation.csv", help="CSV of the rows")
    parser.add_argument("--root", type=Path, help="folder of domains; default: the built-in digits")
    parser.add_argument("--source", default="Art")
    parser.add_argument("--target", default="Clipart")
    parser.add_argument("--weights", type=Path, help="file of a pretrained backbone")
    parser.add_argument("--stage1", default="--steps 250", help="more options of tcm mechanisms")
    parser.add_argument("--options", default="--evaluate-every 600", help="more options of tcm train")
    arguments = parser.parse_args()
    if arguments.what in ("stage1", "stage2"):
        print(*commands(arguments), sep="\n")
        return
    if arguments.what == "rows":
        add_rows(arguments.to, rows(arguments.out), COLUMNS, ("form", "task", "seed"))
    Console(width=150).print(table(arguments.to))


if __name__ == "__main__":
    main()
