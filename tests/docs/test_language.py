"""Plain English: the words of an earlier private dialect stay out of the pages and of the program's help."""

import re
from pathlib import Path

from support.documents import GENERATED, PAGES, ROOT, name_of

NOT = [
    r"census|handover|\bbands\b|\breadings\b|\bledger\b|\brhythm\b|looks_up",
    r"\bjudged\b|\bdealt\b|looked_at|\bnarrowed\b|made_of|\bmade of\b",
    r"\b(is|are|was) told\b|\btold (from|apart|by)\b|gone on with|go on with|what became of",
    r"\ba (line|row|column|page|run) a\b|\bhas but\b|\bbut one\b|own lights",
    r"is no (int|float|integer|number|str)\b|holds other files|is no run folder",
    r"of no use|hope for",
]


def found_in(page: Path) -> list[str]:
    """The unwanted phrases of a page, which may break over lines."""
    text = " ".join(page.read_text().split())
    return [f"{name_of(page)}: {found[0]}" for words in NOT for found in re.finditer(words, text, flags=re.IGNORECASE)]


def test_pages_are_in_plain_english():
    # The changelog names what was renamed.
    assert [found for page in PAGES if page != ROOT / "CHANGELOG.md" for found in found_in(page)] == []


def test_help_is_in_plain_english(site: Path):
    assert [found for page in sorted(GENERATED.glob("*.md")) for found in found_in(page)] == []


def test_the_words_are_found_across_lines():
    for phrase in ("a line\na method", "has but one", "prove to be of no use", "'x' is no INT", "a failure is told"):
        text = " ".join(phrase.split())
        assert any(re.search(words, text, flags=re.IGNORECASE) for words in NOT), phrase
