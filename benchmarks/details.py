"""What the rows of results leave out: a line for each number, with the run that it is of.

python benchmarks/details.py RUN... --to CSV

Of a run of a method: selection scores and target accuracy at every evaluation, and at its last step its prediction
variants, the causal head and the losses. Of a run of `tcm mechanisms`: the Frechet distances that `--watch.images`
measured, at every evaluation. A run that was stopped has what it came to. Lines that the CSV already has of a run of
the same name and seed are replaced.
"""

import argparse
import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tcm.errors import InputError
from tcm.results.store import read_table
from tcm.training.run_folder import Run, read_json, write_atomically


class Detail(NamedTuple):
    """A number of a run."""

    run: str
    seed: int
    step: int
    name: str
    value: str
    torch: str
    commit: str


def details(folder: Path) -> Iterator[Detail]:
    """The run's numbers, in the order in which its metrics have them."""
    run = Run(folder)
    config, origin = read_json(run.config_file), read_json(run.environment_file)
    name = f"{domain(config['data'], 'source')} to {domain(config['data'], 'target')}, {folder.name}"
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


def domain(data: dict[str, Any], side: str) -> str:
    """The name of a domain, whichever way the data was given."""
    folder, file = data[f"{side}_dir"], data[f"{side}_list"]
    return data[side] or (Path(folder).name if folder else Path(file).stem if file else f"{data['benchmark']} {side}")


def main() -> None:
    """Adds the numbers of all runs, or of none if one is no run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, required=True, help="CSV that the lines are added to")
    options = parser.parse_args()
    try:
        add_details(options.to, [detail for folder in options.runs for detail in details(folder)])
    except InputError as error:
        sys.exit(f"error: {error}")


def add_details(file: Path, found: list[Detail]) -> None:
    """Adds the numbers to the CSV, which is replaced whole; those that it has of the same runs and seeds go."""
    renewed = {(detail.run, str(detail.seed)) for detail in found}
    there = read_table(file, Detail._fields) if file.exists() else []
    kept = [line for line in there if (line["run"], line["seed"]) not in renewed]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, Detail._fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows([*kept, *(detail._asdict() for detail in found)])
    write_atomically(file, text.getvalue().encode())


if __name__ == "__main__":
    main()
