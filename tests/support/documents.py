"""The documentation's pages and what is in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = DOCS / "reference" / "commands"  # written by the build, from the program's help
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    if not page.is_relative_to(GENERATED) and not page.is_relative_to(DOCS / "_build")
)


def name_of(page: Path) -> str:
    """The page's path in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def without_blocks(page: Path) -> str:
    """The page's text without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def table_rows(text: str) -> list[list[str]]:
    """The cells of every row of every table."""
    cells = (re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in text.splitlines() if line.strip().startswith("|"))
    return [[cell.strip() for cell in row] for row in cells]
