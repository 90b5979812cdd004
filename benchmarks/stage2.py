"""Stage 2 on the digits: the methods, the ablation of the former default, and the share of the gap that they close.

The commands with options of `tcm` need version 0.2 or 0.1, whose default they are about.

python benchmarks/stage2.py --commands      the runs of the study, as commands (stage 1's: benchmarks/mechanisms.py)
python benchmarks/stage2.py RUN... --to benchmarks/results/digits-tcm.csv
python benchmarks/stage2.py                 the table from the rows that are there
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tcm.results.identity import grouped, spread
from tcm.results.store import ORIGIN, add_rows, read_rows, read_table
from tcm.results.store import row as common_row

RESULTS = Path(__file__).parent / "results"
SEEDS = range(3)
VARIANTS = ["fast", "f_y alone", "gaussian weights", "uniform weights"]
SCORES = ["accuracy", "mean_class_accuracy", "source_accuracy", "selection", "steps", "seconds"]
COLUMNS = ["form", "source", "target", "method", "seed", *SCORES, *VARIANTS, "head", *ORIGIN]


class Form(NamedTuple):
    """A row of the study's table."""

    method: str
    mechanisms: str  # a run of benchmarks/mechanisms.py --commands, without its seed
    options: str = ""


STUDY = {
    "baseline": Form("baseline", "paper-k1"),
    "paper": Form("tcm-paper", "paper-k4"),
    "release": Form("tcm-release", "release-k4"),
    "default": Form("tcm", "paper-k4"),
    "k1": Form("tcm", "paper-k1"),
    "k2": Form("tcm", "paper-k2"),
    "disentangled": Form("tcm", "disentangled-k4"),
    "release-mechanisms": Form("tcm", "release-k4"),
    "control": Form("tcm-control", "paper-k4"),
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


def table() -> Table:
    """Mean and sample standard deviation over seeds, and the share of the gap that is closed."""
    known = read_rows([RESULTS / "digits.csv"])
    groups = {
        "source only": [r for r in known if r["method"] == "erm" and r["source"] == "digits source"],
        "DANN": [r for r in known if r["method"] == "dann"],
        "ceiling": [r for r in known if r["source"] != "digits source"],
    }
    study = read_table(RESULTS / "digits-tcm.csv", COLUMNS)
    groups |= grouped(study, (row["form"] for row in study))
    low, high = (spread(numbers(groups[name], "accuracy")).mean for name in ("source only", "ceiling"))
    out = Table("form", "accuracy", "gap closed", *VARIANTS, "seeds", title="digits, last iterate, %")
    for name, rows in groups.items():
        accuracy = spread(numbers(rows, "accuracy"))
        others = [numbers(rows, column) for column in VARIANTS]
        closed = f"{100 * (accuracy.mean - low) / (high - low):.0f} %"
        texts = [spread(values).text() if values else "" for values in others]
        out.add_row(name, accuracy.text(), closed, *texts, str(len(rows)))
    return out


def numbers(rows: list[dict[str, str]], column: str) -> list[float]:
    """The numbers in a column of the rows that have one."""
    return [float(row[column]) for row in rows if row.get(column)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--to", type=Path, help="CSV that the rows are added to, one per run")
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
