"""Adds numbers of runs that a store of results does not have: one row per number.

python benchmarks/details.py RUN... --to CSV

Of a run of a method: selection scores and target accuracy at every evaluation, and at its last step its prediction
variants, the causal head and the losses. Of a run of `tcm mechanisms`: the Frechet distances that `--watch.images`
measured, at every evaluation. A run that was stopped has what it came to. Lines that the CSV already has of a run of
the same name and seed are replaced.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from tcm.analysis.run_record import domain_name
from tcm.errors import InputError
from tcm.results.store import read_table
from tcm.training.files import write_atomically
from tcm.training.run_folder import Run, read_json


class Detail(NamedTuple):
    """One number of a run."""

    run: str
    seed: int
    step: int
    name: str
    value: str
    torch: str
    commit: str


def details(folder: Path) -> Iterator[Detail]:
    """The numbers of a run, in the order of its metrics."""
    run = Run(folder)
    config, origin = run.config(), read_json(run.environment_file)
    source, target = (domain_name(config["data"], side) for side in ("source", "target"))
    name = f"{source} to {target}, {folder.name}"
    rows = run.metrics()
    last = int(rows[-1]["step"]) if rows else 0
    for row in rows:
        step = int(row["step"])
        wanted = ("frechet/", "select/", "target/accuracy", *(("head/", "loss/") if step == last else ()))
        kept = {key: value for key, value in row.items() if key.startswith(wanted)}
        for key, value in kept.items():
            yield Detail(name, config["seed"], step, key, f"{value:.6g}", origin["torch"], origin["commit"])
    evaluation = folder / "evaluation.json"
    if "method_name" in config and evaluation.exists():
        target = read_json(evaluation)["target"]
        for key, variant in target.get("variants", {}).items():
            found = f"{100 * variant['accuracy']:.2f}"
            yield Detail(name, config["seed"], last, f"accuracy, {key}", found, origin["torch"], origin["commit"])


def main() -> None:
    """Adds the numbers of all runs, or of none if one folder is not a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, required=True, help="CSV that the rows are added to")
    options = parser.parse_args()
    try:
        add_details(options.to, [detail for folder in options.runs for detail in details(folder)])
    except InputError as error:
        sys.exit(f"error: {error}")


def add_details(file: Path, found: list[Detail]) -> None:
    """Adds the numbers to the CSV, which is replaced whole, in place of those of the same runs and seeds."""
    renewed = {(detail.run, str(detail.seed)) for detail in found}
    there = read_table(file, Detail._fields) if file.exists() else []
    kept = [row for row in there if (row["run"], row["seed"]) not in renewed]
    frame = pd.DataFrame([*kept, *(detail._asdict() for detail in found)], columns=list(Detail._fields))
    write_atomically(file, frame.to_csv(index=False, lineterminator="\n").encode())


if __name__ == "__main__":
    main()
