"""Finished runs -> rows of a store in benchmarks/results: every published number with how it came about.

python benchmarks/collect.py runs/a2c-* --to benchmarks/results/office-home.csv
"""

import argparse
from pathlib import Path

from tcm.results import add_rows, row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    add_rows(arguments.to, map(row, arguments.runs))


if __name__ == "__main__":
    main()
