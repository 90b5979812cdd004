"""Adds finished runs to a store in benchmarks/results: one row per run, with its commit, config and seed.

python benchmarks/collect.py runs/a2c-* --to benchmarks/results/office-home.csv
"""

import argparse
import sys
from pathlib import Path

from tcm.errors import InputError
from tcm.results.store import add_rows, row


def main() -> None:
    """Adds the rows of all runs, or of none if one of them is not finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, required=True, help="CSV that the rows are added to")
    arguments = parser.parse_args()
    try:
        add_rows(arguments.to, map(row, arguments.runs))
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
