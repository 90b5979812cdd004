"""How well each label-free score orders models: the tables of docs/selection.md, from the details of runs.

python benchmarks/agreement.py benchmarks/results/office-home-1000-details.csv     one evaluation a run: between runs
python benchmarks/agreement.py benchmarks/results/office-home-10000-details.csv    many: within a run too
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tcm.select import agreement

Evaluations = dict[int, dict[str, float]]


def read(file: Path) -> dict[str, dict[str, Evaluations]]:
    """Evaluations by step, by run, by task."""
    tasks: dict[str, dict[str, Evaluations]] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    with file.open(newline="") as lines:
        for line in csv.DictReader(lines):
            task, run = line["run"].split(", ")
            if line["name"].startswith(("select/", "target/accuracy")):
                tasks[task][run][int(line["step"])][line["name"]] = float(line["value"])
    return tasks


def table(title: str, runs: list[Evaluations]) -> Table:
    """Rank correlation over all evaluations, and how many points each score's choice is below the best."""
    count = sum(map(len, runs))
    shown = Table("score", "rank correlation", "below the best of all", title=f"{title}, {count} evaluations")
    if several := count > len(runs) > 1:
        shown.add_column("below the best of its run")
    rows = [[{"step": step, **found} for step, found in run.items()] for run in runs]
    for name, found in agreement(rows).items():
        missed = [found.regret, found.regret_in_runs] if several else [found.regret]
        shown.add_row(name, f"{found.correlation:.2f}", *(f"{100 * points:.2f}" for points in missed))
    return shown


def main() -> None:
    """A table for each task, and for each run that was evaluated more than once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("details", type=Path, help="CSV that benchmarks/details.py wrote")
    console = Console()
    for task, runs in read(parser.parse_args().details).items():
        console.print(table(task, list(runs.values())))
        for name, run in runs.items():
            if len(run) > 1:
                console.print(table(f"{task}, {name}", [run]))


if __name__ == "__main__":
    main()
