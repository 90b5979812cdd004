"""The site builds without a warning and without a network, and has what it must have."""

import re
from html import unescape
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile
from support.documents import DOCS, GENERATED

import tcm
from tcm.cli.app import COMMANDS
from tcm.methods import METHODS

PAGES = [*(name for name in COMMANDS if name != "train"), *(f"train {method}" for method in METHODS)]


def objects(site: Path, kind: str) -> set[str]:
    """The names of all documented objects of a kind, as other projects would link to them."""
    return set(InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data.get(kind, {}))


def test_every_public_name_is_documented(site: Path):
    documented = objects(site, "py:function") | objects(site, "py:class") | objects(site, "py:exception")
    documented |= objects(site, "py:data")
    public: list[str] = getattr(tcm, "__all__", [])
    assert public
    assert [name for name in public if f"tcm.{name}" not in documented] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_command_has_a_page_with_its_options(site: Path, name: str):
    file = name.replace(" ", "-")
    page = (site / "reference" / "commands" / f"{file}.html").read_text()
    assert f"<h1>tcm {name}<" in page
    text = unescape(re.sub(r"<[^>]+>", "", page))
    assert f"tcm {name} " in text or name == "demo"
    assert f"tcm-{file}.--quiet" in objects(site, "std:cmdoption")


def test_options_are_the_programs_own(site: Path):
    page = (GENERATED / "train-dann.md").read_text()
    assert ":::{option} --method.trade-off FLOAT\nWeight of the domain loss. (default: 1.0)\n:::" in page
    assert ":::{option} --device {auto,cpu,cuda,mps}\n" in page
    assert "-h, --help" not in page


def test_every_result_page_says_how_models_were_selected():
    pages = sorted((DOCS / "results").glob("*.md"))
    assert len(pages) > 8
    for page in pages:
        if page.name != "index.md":
            title, rule = page.read_text().split("\n\n")[:2]
            assert title.endswith("?")
            assert rule.startswith("**Selection rule")


def test_the_page_of_the_digits_keeps_its_address(site: Path):
    assert (site / "digits" / "index.html").read_bytes() == (DOCS / "digits" / "index.html").read_bytes()
    assert 'href="digits/index.html"' in (site / "benchmarks.html").read_text()
    assert 'href="../digits/index.html"' in (site / "results" / "digits.html").read_text()


def test_nothing_is_loaded_from_a_network(site: Path):
    for page in site.rglob("*.html"):
        if page.parent.name != "digits":
            loaded = re.findall(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text())
            assert loaded == [], page


def test_code_in_pages_is_a_link_to_its_line(site: Path):
    link = re.search(r'href="(code/src/tcm/nn/losses.html)#line-(\d+)"', (site / "method.html").read_text())
    assert link
    code = (site / link[1]).read_text()
    assert f'id="line-{link[2]}"' in code
    line = (DOCS.parent / "src" / "tcm" / "nn" / "losses.py").read_text().splitlines()[int(link[2]) - 1]
    assert line.startswith("def ")
