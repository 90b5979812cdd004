"""docs/method.md leads from everything numbered in the paper to code that exists."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from support.documents import DOCS, PAGES, ROOT, name_of, table_rows

MAP = DOCS / "method.md"
TARGET = re.compile(r"`((?:src|tests|benchmarks|examples)/[\w/.-]+\.py)(?:::([\w.]+))?`")
EQUATIONS = [f"Eq. ({number})" for number in range(1, 35)]
TABLES = [f"Table {number}" for number in ("1", "2", "3", "4", "A1")]
FIGURES = [f"Figure {number}" for number in ("1", "2", "3", "4", "5", "6", "7", "8", *(f"A{n}" for n in range(1, 7)))]


def section(title: str) -> str:
    """The part of the page below a heading."""
    parts = re.split(r"^## ", MAP.read_text(), flags=re.MULTILINE)
    (found,) = [part for part in parts if part.startswith(title)]
    return found


@pytest.mark.parametrize(
    ("titles", "numbers"),
    [
        (["Equations of the main text", "Equations of the appendix"], EQUATIONS),
        (["Algorithm 1"], [f"line {number}" for number in range(1, 18)]),
        (["Algorithm 2"], [f"line {number}" for number in range(1, 6)]),
        (["Tables"], TABLES),
        (["Figures"], FIGURES),
    ],
    ids=lambda value: value[0],
)
def test_everything_numbered_is_mapped_once_and_in_order(titles: list[str], numbers: list[str]):
    rows = [row for title in titles for row in table_rows(section(title)) if re.search(r"\d", row[0])]
    assert [row[0] for row in rows] == numbers
    for number, _, code in rows:
        assert TARGET.search(code) or code.startswith(("not yet", "none")), number


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_target_exists(page: Path, source_links: ModuleType):
    missing = [
        f"{file}::{name}" if name else file
        for file, name in TARGET.findall(page.read_text())
        if not (ROOT / file).is_file() or (name and source_links.line_of(ROOT / file, name) is None)
    ]
    # The method that the page adds is not in the tree.
    added = ["src/tcm/methods/coral.py", "tests/methods/test_coral.py"] if page.name == "adding-a-method.md" else []
    assert missing == added


def test_the_map_names_many_targets():
    assert len(set(TARGET.findall(MAP.read_text()))) > 60


def test_definitions_are_found_by_name(source_links: ModuleType, tmp_path: Path):
    file = tmp_path / "code.py"
    file.write_text("A = 1\nB: int = 2\n\n\ndef f(): ...\n\n\nclass C:\n    x: int = 0\n\n    def f(self): ...\n")
    lines = {name: source_links.line_of(file, name) for name in ("A", "B", "f", "C", "C.x", "C.f")}
    assert lines == {"A": 1, "B": 2, "f": 5, "C": 8, "C.x": 9, "C.f": 11}
    assert [source_links.line_of(file, name) for name in ("D", "C.g", "f.x", "x")] == [None] * 4
