"""How well each label-free score ranks models: the tables of docs/selection.md, from the details of runs.

python benchmarks/agreement.py benchmarks/results/office-home-1000-details.csv     one evaluation per run: between runs
python benchmarks/agreement.py benchmarks/results/office-home-10000-details.csv    many: also within a run
"""

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path

from details import Detail
from rich.console import Console
from rich.table import Table

from tcm.classifier.selection import ACCURACY, agreement
from tcm.errors import InputError
from tcm.results.store import read_table

Evaluations = dict[int, dict[str, float]]


def read(file: Path) -> dict[str, dict[str, Evaluations]]:
    """Evaluations by task, run and step, of runs whose target has labels."""
    tasks: dict[str, dict[str, Evaluations]] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for line in read_table(file, Detail._fields):
        task, _, run = line["run"].partition(", ")
        if line["name"].startswith("select/") or line["name"] == ACCURACY:
            tasks[task][run][int(line["step"])][line["name"]] = float(line["value"])
    judged = {task: {name: run for name, run in runs.items() if is_judged(run)} for task, runs in tasks.items()}
    return {task: runs for task, runs in judged.items() if runs}


def is_judged(run: Evaluations) -> bool:
    """Whether the run's target has labels."""
    return any(ACCURACY in found for found in run.values())


def table(title: str, runs: list[Evaluations]) -> Table:
    """Rank correlation over all evaluations, and how many points each score's choice is below the best."""
    count = sum(map(len, runs))
    shown = Table("score", "rank correlation", "below the best of all", title=f"{title}, {count} evaluations")
    if several := count > len(runs) > 1:
        shown.add_column("below the best of its run")
    rows = [[{"step": step, **found} for step, found in run.items()] for run in runs]
    for name, found in agreement(rows).items():
        missed = [found.regret, found.regret_in_runs] if several else [found.regret]
        correlation = "-" if math.isnan(found.correlation) else f"{found.correlation:.2f}"  # the score is constant
        shown.add_row(name, correlation, *(f"{100 * points:.2f}" for points in missed))
    return shown


def main() -> None:
    """A table for each task, and for each run that was evaluated more than once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("details", type=Path, help="CSV that benchmarks/details.py wrote")
    console = Console()
    try:
        tasks = read(parser.parse_args().details)
    except InputError as error:
        sys.exit(f"error: {error}")
    if not tasks:
        sys.exit("error: no run in this file has a target accuracy; name the details of runs whose target has labels")
    for task, runs in tasks.items():
        console.print(table(task, list(runs.values())))
        for name, run in runs.items():
            if len(run) > 1:
                console.print(table(f"{task}, {name}", [run]))


if __name__ == "__main__":
    main()
