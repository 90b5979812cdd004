"""What stage 2 is worth on the digits: the methods, the default's ablation, and the share of the gap they close.

python benchmarks/stage2.py --commands      the runs of the study, as commands (stage 1's: benchmarks/mechanisms.py)
python benchmarks/stage2.py RUN... --to benchmarks/results/digits-tcm.csv
python benchmarks/stage2.py                 the table from the rows that are there
"""

import argparse
import csv
import json
import statistics
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tcm.results.store import ORIGIN, add_rows
from tcm.results.store import row as common_row

RESULTS = Path(__file__).parent / "results"
SEEDS = range(3)
VARIANTS = ["fast", "f_y alone", "gaussian weights", "uniform weights"]
SCORES = ["accuracy", "mean_class_accuracy", "source_accuracy", "selection", "steps", "seconds"]
COLUMNS = ["form", "source", "target", "method", "seed", *SCORES, *VARIANTS, "head", *ORIGIN]


class Form(NamedTuple):
    """A column of the study."""

    method: str
    mechanisms: str  # a run of benchmarks/mechanisms.py --commands, without its seed
    options: str = ""


STUDY = {
    "baseline": Form("baseline", "paper-k1"),
    "paper": Form("tcm", "paper-k4", "--preset paper"),
    "release": Form("tcm", "release-k4", "--preset release"),
    "default": Form("tcm", "paper-k4"),
    "k1": Form("tcm", "paper-k1"),
    "k2": Form("tcm", "paper-k2"),
    "disentangled": Form("tcm", "default-k4"),
    "release-mechanisms": Form("tcm", "release-k4"),
    "control": Form("tcm", "paper-k4", "--method.mixing none"),
    "no-counterfactual": Form("tcm", "paper-k4", "--method.counterfactual 0 --method.plain 1"),
    "no-agreement": Form("tcm", "paper-k4", "--method.agreement 0"),
    "sharpened": Form("tcm", "paper-k4", "--method.sharpness 2"),
    "domains": Form("tcm", "paper-k4", "--method.alignment.kind domains"),
    "no-alignment": Form("tcm", "paper-k4", "--method.alignment.weight 0"),
    "head": Form("tcm", "paper-k4", "--method.head.weight 1 --method.head.vae-lr 1e-3 --method.prediction adjusted"),
    "untrained": Form("tcm", "untrained-k4"),
}


def row(folder: Path) -> dict[str, str]:
    """The row of a run whose folder is called FORM-sSEED."""
    result = json.loads((folder / "evaluation.json").read_text())
    read = {name: f"{100 * found['accuracy']:.2f}" for name, found in result["target"]["variants"].items()}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    head: dict[str, float] = {}
    for one in rows:
        head |= {name.removeprefix("head/"): round(x, 5) for name, x in one.items() if name.startswith("head/")}
    form = folder.name.rsplit("-s", 1)[0]
    others = {name: read.get(name, "") for name in VARIANTS}
    found = {**common_row(folder), "form": form, **others, "head": json.dumps(head) if head else ""}
    return {name: found[name] for name in COLUMNS}


def digits_rows(file: str) -> list[dict[str, str]]:
    """The rows of a results file, if it is there."""
    path = RESULTS / file
    return list(csv.DictReader(path.open())) if path.exists() else []


def table() -> Table:
    """Mean and sample standard deviation over seeds, and the share of the gap that is closed."""
    known = digits_rows("digits.csv")
    groups = {
        "source only": [r for r in known if r["method"] == "erm" and r["source"] == "digits source"],
        "DANN": [r for r in known if r["method"] == "dann"],
        "ceiling": [r for r in known if r["source"] != "digits source"],
    }
    for found in digits_rows("digits-tcm.csv"):
        groups.setdefault(found["form"], []).append(found)
    low, high = (statistics.mean(float(r["accuracy"]) for r in groups[name]) for name in ("source only", "ceiling"))
    out = Table("form", "accuracy", "gap closed", *VARIANTS, "seeds", title="digits, last iterate, %")
    for name, rows in groups.items():
        accuracy = [float(r["accuracy"]) for r in rows]
        others = [[float(r[column]) for r in rows if r.get(column)] for column in VARIANTS]
        closed = f"{100 * (statistics.mean(accuracy) - low) / (high - low):.0f} %"
        out.add_row(name, spread(accuracy), closed, *map(spread, others), str(len(rows)))
    return out


def spread(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--to", type=Path, help="CSV that gets a row a run")
    parser.add_argument("--commands", action="store_true", help="print the runs of the study")
    arguments = parser.parse_args()
    if arguments.commands:
        for name in dict.fromkeys(form.mechanisms for form in STUDY.values()):
            for seed in SEEDS:
                print(f"tcm transport runs/mechanisms/{name}-s{seed}")
        for name, (method, mechanisms, options) in STUDY.items():
            for seed in SEEDS:
                words = [f"tcm train {method} --data.benchmark digits --evaluate-every 600", options, f"--seed {seed}"]
                given = f"--mechanisms runs/mechanisms/{mechanisms}-s{seed}"
                print(*filter(None, words), given, f"--out runs/stage2/{name}-s{seed}")
        return
    if arguments.to:
        add_rows(arguments.to, map(row, arguments.runs), COLUMNS, ("form", "seed"))
    Console(width=150).print(table())


if __name__ == "__main__":
    main()
