"""Finished runs -> rows of a CSV in benchmarks/results: every published number with how it came about.

python benchmarks/collect.py runs/a2c-* --to benchmarks/results/office-home.csv
"""

import argparse
import csv
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ORIGIN = ["device", "torch", "commit", "config_hash", "config"]  # how a row came about
COLUMNS = [
    "source",
    "target",
    "method",
    "seed",
    "accuracy",
    "mean_class_accuracy",
    "source_accuracy",
    "selection",
    "steps",
    "seconds",
    *ORIGIN,
]


def row(folder: Path) -> dict[str, object]:
    """The row of one finished run of stage 2."""
    config = read_config(folder)
    result = json.loads((folder / "evaluation.json").read_text())
    method = config.pop("method_name")
    return {
        "source": result["source"]["name"],
        "target": result["target"]["name"],
        "method": method,
        "seed": config["seed"],
        "accuracy": f"{100 * result['target']['accuracy']:.2f}",
        "mean_class_accuracy": f"{100 * result['target']['mean_class_accuracy']:.2f}",
        "source_accuracy": f"{100 * result['source']['accuracy']:.2f}",
        "selection": result["selection"],
        "steps": result["step"],
        "seconds": f"{result['seconds']:.0f}",
        **origin(folder, config),
    }


def read_config(folder: Path) -> dict[str, Any]:
    """The run's configuration. Machine-specific paths stay out of it and of its hash."""
    config = json.loads((folder / "config.json").read_text())
    config["data"] = {
        key: Path(str(value)).name if "/" in str(value) else value for key, value in config["data"].items()
    }
    if config.get("backbone", {}).get("weights"):
        config["backbone"]["weights"] = Path(config["backbone"]["weights"]).name
    if config.get("mechanisms"):
        config["mechanisms"] = Path(config["mechanisms"]).name
    return config


def origin(folder: Path, config: dict[str, Any]) -> dict[str, object]:
    """How the run came about: the columns of ORIGIN."""
    environment = json.loads((folder / "environment.json").read_text())
    text = json.dumps(config, sort_keys=True)
    return {
        "device": environment["device_name"],
        "torch": environment["torch"],
        "commit": environment["commit"],
        "config_hash": hashlib.blake2b(text.encode(), digest_size=6).hexdigest(),
        "config": text,
    }


def add_rows(file: Path, columns: Sequence[str], key: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Adds the rows to the CSV; a row that agrees with one there in the columns `key` replaces it."""
    there = list(csv.DictReader(file.open())) if file.exists() else []
    kept = {tuple(str(row[name] or "") for name in key): row for row in [*there, *rows]}
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, columns)
        writer.writeheader()
        writer.writerows(kept.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    add_rows(arguments.to, COLUMNS, ("config_hash", "method", "commit"), map(row, arguments.runs))


if __name__ == "__main__":
    main()
