"""Report pages taken apart."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tcm.report import write_report

HEAD = {"norm": 1.83, "direct_norm": 11.2, "largest": 2.04, "smallest": 0.512, "lost": 0, "share": 0.307}
TITLES = ("Prediction variants", "The causal head")


class Page(HTMLParser):
    """A page taken apart: its text, the attributes of every tag, and the cells of every table row."""

    def __init__(self, file: Path):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.headings: list[str] = []
        self.open: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if {"style", "script"} & set(self.open):
            return
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def attributes(self, tag: str, name: str) -> list[str | None]:
        return [attributes.get(name) for found, attributes in self.tags if found == tag]


def page_of(*runs: Path) -> Page:
    return Page(write_report(runs, runs[0].parent / "report"))


def summary_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "evaluation.json").read_text())
