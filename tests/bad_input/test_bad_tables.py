"""Mistakes with tables of results."""

import pytest
from support.mistakes import Case, Prepare, World, require_refusal, write

from tcm.results.store import COLUMNS, VERSION, add_rows


def store(**columns: str) -> Prepare:
    """A CSV of one result, {here}/s.csv."""
    usual = {"version": VERSION, "benchmark": "digits", "task": "source>target", "selection": "last", "config": "{}"}
    row = {**dict.fromkeys(COLUMNS, ""), **usual, "accuracy": "50", "mean_class_accuracy": "50", **columns}
    return lambda world: add_rows(world.here / "s.csv", [row])


TABLE = "table {here}/s.csv"
CASES = (
    Case("table of nothing", "table", ("there are no results", "name at least one")),
    Case("table of a missing file", TABLE, ("/s.csv cannot be read (No such file", "name a CSV of results")),
    Case("table of a folder", "table {here}", ("has no results.csv", "name the folder of a suite")),
    Case("table of a run", "table {run}/config.json", ("config.json is not a CSV of results", "name another file")),
    Case("table of an empty file", TABLE, ("the stores have no results", "name a CSV"), write("s.csv", b"")),
    Case(
        "table of another version",
        TABLE,
        ("/s.csv is a store of version 1, but this tcm reads version 2", "use the tcm that wrote it"),
        lambda world: write("s.csv", ",".join(COLUMNS) + "\n1" + "," * (len(COLUMNS) - 1) + "\n")(world),
    ),
    Case(
        "table of an unknown benchmark",
        TABLE + " --benchmark Offise",
        ("--benchmark is Offise", "the results are on digits"),
        store(),
    ),
    Case("table in an unknown format", TABLE + " --format pdf", ("--format", "'pdf'", "'latex', 'csv'"), store()),
    Case(
        "table by an unknown rule",
        TABLE + " --selection entropy",
        ("--selection is entropy", "were selected by last"),
        store(),
    ),
    Case("table without accuracies", TABLE, ("no accuracies", "no labels"), store(accuracy="")),
    Case("table with a wrong number", TABLE, ("/s.csv: row 1 is damaged", "'many'", "correct"), store(accuracy="many")),
    Case("table with a NaN", TABLE, ("/s.csv: row 1 is damaged", "not between 0 and 100"), store(accuracy="nan")),
    Case("table with too much", TABLE, ("row 1 is damaged", "not between 0 and 100"), store(accuracy="101")),
    Case("table without settings", TABLE, ("row 1 is damaged", "config is not a JSON object"), store(config="3")),
    Case("table onto a folder", TABLE + " --out {here}", ("--out", "it is a folder", "choose another file"), store()),
    Case("table in a missing folder", TABLE + " --out {here}/no/x", ("--out", "/no/x", "choose another file"), store()),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)
