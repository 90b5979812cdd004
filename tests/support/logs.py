"""The log of a run as --log csv writes it."""

import csv
from pathlib import Path


def logged_steps(run: Path) -> list[int]:
    """The steps of all rows."""
    with (run / "log" / "csv" / "metrics.csv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file)]
