"""Finished runs -> rows of a CSV in benchmarks/results: every published number with how it came about.

python benchmarks/collect.py runs/a2c-* --to benchmarks/results/office-home.csv
"""

import argparse
import csv
import hashlib
import json
from pathlib import Path

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
    "device",
    "torch",
    "commit",
    "config_hash",
    "config",
]


def row(folder: Path) -> dict[str, object]:
    """The row of one finished run. Machine-specific paths stay out of the config and of its hash."""
    config = json.loads((folder / "config.json").read_text())
    environment = json.loads((folder / "environment.json").read_text())
    result = json.loads((folder / "evaluation.json").read_text())
    method = config.pop("method_name")
    config["data"] = {
        key: Path(str(value)).name if "/" in str(value) else value for key, value in config["data"].items()
    }
    if config["backbone"]["weights"]:
        config["backbone"]["weights"] = Path(config["backbone"]["weights"]).name
    text = json.dumps(config, sort_keys=True)
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
        "device": environment["device_name"],
        "torch": environment["torch"],
        "commit": environment["commit"],
        "config_hash": hashlib.blake2b(text.encode(), digest_size=6).hexdigest(),
        "config": text,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    there = list(csv.DictReader(arguments.to.open())) if arguments.to.exists() else []
    rows = {(r["config_hash"], r["method"], r["commit"]): r for r in [*there, *map(row, arguments.runs)]}
    with arguments.to.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows.values())


if __name__ == "__main__":
    main()
