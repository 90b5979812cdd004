"""Every mean and deviation in a table of the documentation follows from rows of benchmarks/results."""

import csv
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.documents import DOCS, ROOT, name_of, table_rows

PAGES = [ROOT / "README.md", DOCS / "which-method.md", *sorted((DOCS / "results").glob("*.md"))]


def numbers_by_group(file: Path) -> Iterator[list[float]]:
    """The values of every column, over runs that differ in the seed alone."""
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in csv.DictReader(file.read_text().splitlines()):
        if "name" in row:  # a file of details has one number per row
            run, name = re.sub(r"-s\d+$", "", row["run"]), row["name"]
            groups[run, row["step"], name].append(float(row["value"]))
        elif "config" in row and row.get("selection", "last") == "last":
            # Every seed has its own mechanisms; the form tells which kind they are.
            same = {**json.loads(row["config"]), "seed": None, "mechanisms": row.get("form")}
            # A row from before an option was there is one of a run without it.
            same["data"] = {key: value for key, value in same.get("data", {}).items() if value is not None}
            for column, value in row.items():
                if re.fullmatch(r"-?\d+(\.\d+)?", value or ""):
                    groups[row.get("method") or "", json.dumps(same), column].append(float(value))
    yield from groups.values()


@cache
def measured() -> set[str]:
    """Mean ± sample standard deviation of every group, with one decimal and with two."""
    return {
        f"{statistics.mean(group):.{digits}f} ± {statistics.stdev(group):.{digits}f}"
        for file in ROOT.glob("benchmarks/results/*.csv")
        for group in numbers_by_group(file)
        if len(group) > 1
        for digits in (1, 2)
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_numbers_are_those_of_the_results(page: Path):
    cells = [cell for row in table_rows(page.read_text()) for cell in row]
    quoted = [number for cell in cells for number in re.findall(r"\d[\d.]* ± \d[\d.]*", cell)]
    assert [number for number in quoted if number not in measured()] == []


@pytest.mark.parametrize(("page", "least"), [("README.md", 4), ("docs/results/office-home.md", 30)])
def test_there_are_tables_of_results(page: str, least: int):
    cells = [cell for row in table_rows((ROOT / page).read_text()) for cell in row]
    assert sum("±" in cell for cell in cells) >= least
