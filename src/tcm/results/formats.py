"""Tables of results as text: for the terminal, Markdown, LaTeX, CSV, HTML. They differ in their marks alone."""

import csv
import html
import io
import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tcm.results.table import KINDS, METRICS, Cell, Column, Kind, ResultTable, TableRow

Format = Literal["terminal", "markdown", "latex", "csv", "html"]
Emphasis = Literal["plain", "bold", "grey"]

WIDE = 1000  # letters: more than any table has


class Words(NamedTuple):
    """A piece of a table as it is to be read, without the marks of any format."""

    text: str
    emphasis: Emphasis = "plain"


def head(table: ResultTable) -> list[str]:
    """The headings; the metric is named where there are both."""
    both = len({column.metric for column in table.columns}) > 1
    return ["method", *(_heading(column, both) for column in table.columns)]


def _heading(column: Column, both: bool) -> str:
    return column.task.replace(">", "→") + (f", {METRICS[column.metric]}" if both else "")


def sections(table: ResultTable) -> list[tuple[Kind, list[list[Words]]]]:
    """The lines of each kind: the method's name, then its figures. Our best are bold, those of the oracle grey."""
    found: dict[Kind, list[list[Words]]] = {kind: [] for kind in KINDS}
    for line in table.lines:
        found[line.kind].append(_line(table, line))
    return [(kind, lines) for kind, lines in found.items() if lines]


def _line(table: ResultTable, line: TableRow) -> list[Words]:
    name = line.name if line.kind == "measured" else f"{line.name} ({line.kind})"
    usual: Emphasis = "grey" if line.kind == "oracle" else "plain"
    figures = [
        Words(_figure(cell, table.seeds), "bold" if table.is_best(line, column) else usual)
        for column, cell in enumerate(line.cells)
    ]
    return [Words(name, usual), *figures]


def _figure(cell: Cell | None, usual_seeds: int) -> str:
    if cell is None:
        return ""
    deviation = "" if cell.deviation is None else f" ± {cell.deviation:.1f}"
    seeds = "" if cell.seeds in (None, usual_seeds) else f" (n = {cell.seeds})"
    return f"{cell.mean:.1f}{deviation}{seeds}"


def terminal(tables: Sequence[ResultTable], width: int | None = None) -> str:
    """For a terminal of that width, in its colours; without one plain text."""
    text = io.StringIO()
    running, wide = (
        Console(file=text, width=letters, force_terminal=width is not None) for letters in (width or WIDE, WIDE)
    )
    for table in tables:
        running.print(Text(table.caption))
        # Where the terminal is too narrow the lines run over: rich would cut numbers short.
        wide.print(_rich_table(table))
        for note in table.notes:
            running.print(Text(note))
    return text.getvalue()


def _rich_table(table: ResultTable) -> Table:
    styles = {"plain": "", "bold": "bold", "grey": "dim"}
    drawn = Table()
    for number, name in enumerate(head(table)):
        drawn.add_column(Text(name), justify="right" if number else "left")
    for _, lines in sections(table):
        for words in lines:
            drawn.add_row(*(Text(word.text, styles[word.emphasis]) for word in words))
        drawn.add_section()
    return drawn


def markdown(tables: Sequence[ResultTable]) -> str:
    """Tables as GitHub shows them. Markdown knows no grey: italics stand for it."""
    marks = {"plain": "{}", "bold": "**{}**", "grey": "*{}*"}

    def marked(words: Words) -> str:
        return marks[words.emphasis].format(_markdown(words.text)) if words.text else ""

    parts = []
    for table in tables:
        names = head(table)
        rows = [[_markdown(name) for name in names], ["---", *["---:"] * (len(names) - 1)]]
        rows += [list(map(marked, line)) for _, lines in sections(table) for line in lines]
        parts += [_markdown(table.caption), "\n".join(f"| {' | '.join(row)} |" for row in rows)]
        parts += map(_markdown, table.notes)
    return "\n\n".join(parts) + "\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def latex(tables: Sequence[ResultTable]) -> str:
    """Floating tables; of packages they need xcolor alone."""
    marks = {"plain": "{}", "bold": r"\textbf{{{}}}", "grey": r"\textcolor{{gray}}{{{}}}"}

    def marked(words: Words) -> str:
        return marks[words.emphasis].format(_latex(words.text)) if words.text else ""

    lines = [r"% \usepackage{xcolor}"]
    for table in tables:
        names = head(table)
        lines += [r"\begin{table*}", r"\centering", rf"\caption{{{_latex(table.caption)}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}", r"\hline"]
        lines += [" & ".join(map(_latex, names)) + r" \\", r"\hline"]
        for _, section in sections(table):
            lines += [" & ".join(map(marked, line)) + r" \\" for line in section] + [r"\hline"]
        lines += [r"\end{tabular}"]
        lines += [rf"\par\smallskip{{\footnotesize {_latex(note)}}}" for note in table.notes]
        lines += [r"\end{table*}"]
    return "\n".join(lines) + "\n"


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}"}
    special |= {">": r"\textgreater{}", "→": r"$\to$", "±": r"$\pm$", "²": "$^2$"}
    special |= {letter: "\\" + letter for letter in "&%$#_{}"}
    return "".join(special.get(letter, letter) for letter in text)


def csv_text(tables: Sequence[ResultTable]) -> str:
    """A row a figure, so that tables of several benchmarks are one CSV and every number is a number."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["benchmark", "kind", "method", "selection", "task", "metric", "mean", "deviation", "seeds"])
    for table in tables:
        for line in table.lines:
            rule = {"measured": table.selection, "oracle": "oracle", "quoted": ""}[line.kind]
            for column, cell in zip(table.columns, line.cells, strict=True):
                if cell:
                    numbers = ("" if number is None else round(number, 2) for number in cell)
                    writer.writerow([table.benchmark, line.kind, line.name, rule, *column, *numbers])
    return text.getvalue()


def html_page(tables: Sequence[ResultTable]) -> str:
    """A page that needs no other file."""
    marks = {"plain": "{}", "bold": "<strong>{}</strong>", "grey": "{}"}

    def cells(words: Sequence[Words]) -> str:
        first, *others = [marks[word.emphasis].format(html.escape(word.text)) for word in words]
        return f'<th scope="row">{first}</th>' + "".join(f"<td>{other}</td>" for other in others)

    style = (
        "body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem; } table { border-collapse: collapse; }"
        "caption { text-align: left; padding: .5rem 0; } th, td { padding: .15rem .6rem; text-align: right; }"
        "th:first-child { text-align: left; font-weight: normal; } thead th { border-bottom: 1px solid; }"
        "tbody { border-bottom: 1px solid; } .oracle { color: #767676; }"
    )
    parts = [f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Results</title><style>{style}</style>']
    for table in tables:
        names = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head(table))
        parts.append(f"<table>\n<caption>{html.escape(table.caption)}</caption>\n<thead><tr>{names}</tr></thead>")
        for kind, lines in sections(table):
            parts += [f'<tbody class="{kind}">', *(f"<tr>{cells(words)}</tr>" for words in lines), "</tbody>"]
        parts.append("</table>")
        parts += [f"<p>{html.escape(note)}</p>" for note in table.notes]
    return "\n".join([*parts, "</html>"]) + "\n"


FORMATS: dict[Format, Callable[[Sequence[ResultTable]], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "csv": csv_text,
    "html": html_page,
}
