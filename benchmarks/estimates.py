"""How far off are estimates of accuracy without labels? Measured on finished runs whose target has labels.

python benchmarks/estimates.py --kind digits runs/estimate-digits/*-*/*    adds their rows and prints the errors
python benchmarks/estimates.py --write                                     renews src/tcm/estimation/known_cases.json

Rows: kind, task, run, method, seed, estimator, estimate, truth. `select/...` are the scores of docs/selection.md, which
are not accuracies. `... (training)` is what an estimator gives on training images in place of held-out ones. A
combination is tested on tasks that had no part in fitting it; "elsewhere" on another kind of data. `calibration/...` is
the expected calibration error on the target, with temperatures fitted on held-out source images or on pseudo-labels.
"""

import argparse
import csv
import dataclasses
import io
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from estimate_fit import ABOUT, Case, cases_of, fitted_combinations, measured_warnings, score_reliabilities
from rich.console import Console
from rich.table import Table

from tcm.errors import InputError
from tcm.estimation.calibration import (
    fitted_temperature,
    pseudo_labelled_temperature,
    reliability,
    with_temperature,
)
from tcm.estimation.estimate import estimates, from_source
from tcm.estimation.inputs import RunPredictions, read_predictions
from tcm.estimation.known_cases import FILE
from tcm.progress import ProgressDisplay
from tcm.training.files import write_atomically
from tcm.training.run_folder import Run, read_json

RESULTS = Path(__file__).parent / "results" / "estimates.csv"


class Row(NamedTuple):
    """One estimate of one run."""

    kind: str  # of data
    task: str
    run: str
    method: str
    seed: str
    estimator: str
    estimate: str
    truth: str


def rows_of(run: RunPredictions, others: Sequence[RunPredictions], kind: str) -> list[Row]:
    """The rows of a run; none if its target has no labels."""
    truth = read_json(run.folder / "evaluation.json")["target"]["accuracy"]
    if truth is None:
        return []
    found = estimates(run, others)
    if run.held_out.any():
        on_training = from_source(run, ~run.held_out)
        del on_training["calibrated-cot"]  # that is training-cot
        found |= {f"{name} (training)": value for name, value in on_training.items()}
    found |= calibration_errors(run)
    metrics = Run(run.folder).metrics()
    last = max((row for row in metrics if any(key.startswith("select/") for key in row)), key=lambda row: row["step"])
    found |= {key: value for key, value in last.items() if key.startswith("select/")}
    task = f"{run.task[0]} > {run.task[1]}"
    return [
        Row(kind, task, run.folder.name, run.method, str(run.seed), name, f"{value:.4f}", f"{truth:.4f}")
        for name, value in found.items()
    ]


def calibration_errors(run: RunPredictions) -> dict[str, float]:
    """The expected calibration error on the target: as it is, and with the temperatures of two kinds of labels."""
    with np.load(run.folder / "evaluation.npz") as stored:
        labels = stored["labels"]
    temperatures = {"none": 1.0, "pseudo-labels": pseudo_labelled_temperature(run.target, run.source_shares)}
    if run.held_out.any():
        temperatures["held-out source"] = fitted_temperature(run.source[run.held_out], run.labels[run.held_out])
    curves = {name: reliability(with_temperature(run.target, found), labels) for name, found in temperatures.items()}
    return {f"calibration/{name}": curve.expected_calibration_error for name, curve in curves.items() if curve}


def collected(folders: Iterable[Path], kind: str) -> list[Row]:
    """The rows of all runs. Runs on the same task are compared with each other."""
    tasks: dict[tuple[str, ...], list[RunPredictions]] = defaultdict(list)
    for folder in folders:
        run = read_predictions(folder)
        tasks[(*run.task, str(len(run.target)))].append(run)
    total, done, rows = sum(map(len, tasks.values())), 0, []
    with ProgressDisplay("estimating", total, unit="run") as display:
        for runs in tasks.values():
            for run in runs:
                rows += rows_of(run, [other for other in runs if other is not run], kind)
                done += 1
                display.update(done)
    return rows


def read_rows() -> list[Row]:
    """The rows of benchmarks/results/estimates.csv."""
    if not RESULTS.exists():
        return []
    return [Row(**row) for row in csv.DictReader(RESULTS.read_text(encoding="utf-8").splitlines())]


def write_rows(rows: Iterable[Row]) -> list[Row]:
    """Adds rows to the file. A row of the same run and estimator is replaced. Returns all rows."""
    merged = {(row.kind, row.task, row.run, row.estimator): row for row in [*read_rows(), *rows]}
    found = [merged[key] for key in sorted(merged)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([Row._fields, *found])
    write_atomically(RESULTS, text.getvalue().encode())
    return found


def errors_table(cases: list[Case]) -> Table:
    """The error of every single estimator, as it is."""
    table = Table("estimator", "cases", "mean error", "mean absolute error", title="single estimators, in points")
    names = sorted({name for case in cases for name in case} - {*ABOUT})
    for name in [name for name in names if "/" not in name]:
        errors = np.array([100 * (case[name] - case["truth"]) for case in cases if name in case])
        table.add_row(name, str(len(errors)), f"{errors.mean():+.1f}", f"{np.abs(errors).mean():.1f}")
    return table


def main() -> None:
    """Adds the rows of the runs, prints the errors, and writes what the program uses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="folders of finished runs")
    parser.add_argument("--kind", default="photographs", help="kind of data that the runs are on")
    parser.add_argument("--write", action="store_true", help="write known_cases.json")
    given = parser.parse_args()
    try:
        rows = write_rows(collected(given.runs, given.kind)) if given.runs else read_rows()
    except InputError as error:
        sys.exit(f"error: {error}")
    cases, console = cases_of(rows), Console()
    console.print(errors_table(cases))
    for name in ("calibration/none", "calibration/held-out source", "calibration/pseudo-labels"):
        mean = np.mean([case[name] for case in cases if name in case])
        console.print(f"mean expected calibration error, {name}: {100 * mean:.1f} points")
    found = fitted_combinations(cases)
    table = Table(
        *("combination", "cases", "mean absolute error", "half width", "coverage", "error elsewhere", "coverage"),
        title="combinations, each task left out in turn",
    )
    for each in found:
        numbers = each.error, each.half_width, each.coverage, each.error_elsewhere, each.coverage_elsewhere
        table.add_row(each.name, str(each.cases), *(f"{100 * number:.1f}" for number in numbers))
    console.print(table)
    scores = score_reliabilities(cases, found)
    table = Table("score", "rank correlation", "regret", "worst regret", "tasks", title="ranking the runs of a task")
    for name, each in scores.items():
        points = f"{100 * each.regret:.1f}", f"{100 * each.worst:.1f}"
        table.add_row(name, f"{each.correlation:.2f}", *points, str(each.tasks))
    console.print(table)
    warned = measured_warnings(cases, found)
    console.print(f"negative transfer: {warned}")
    if given.write:
        content = {
            "combinations": [dataclasses.asdict(each) for each in found],
            "scores": {name: dataclasses.asdict(each) for name, each in scores.items()},
            "negative_transfer": dataclasses.asdict(warned),
        }
        write_atomically(FILE, (json.dumps(content, indent=2) + "\n").encode())
        console.print(f"written: {FILE}")


if __name__ == "__main__":
    main()
