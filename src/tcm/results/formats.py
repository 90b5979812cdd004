"""Result tables as text: for the terminal, Markdown, LaTeX, CSV and HTML. Only their marks differ."""

import html
import io
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import rich.markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tcm.errors import printable
from tcm.results.identity import Spread
from tcm.results.table import METRICS, ResultTable

if TYPE_CHECKING:
    from pandas import DataFrame

Format = Literal["terminal", "markdown", "latex", "csv", "html"]

WIDE = 1000  # letters: more than any table has
STYLE = (
    "body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem; } table { border-collapse: collapse; }"
    "caption { text-align: left; padding: .5rem 0; } th, td { padding: .15rem .6rem; text-align: right; }"
    "th:first-child { text-align: left; font-weight: normal; } thead th { border-bottom: 1px solid; }"
    "tbody { border-bottom: 1px solid; } .oracle { color: #767676; }"
)
LATEX = str.maketrans(
    {letter: "\\" + letter for letter in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}"}
    | {">": r"\textgreater{}", "→": r"$\to$", "±": r"$\pm$", "²": "$^2$"}
)
FLOAT: dict[str, Any] = {"environment": "table*", "position_float": "centering"}


def shown(table: ResultTable, escape: Callable[[str], str] = str, bold: str = "{}", grey: str = "{}") -> "DataFrame":
    """The table as text: a column "method", then one per task and metric. The index is the kind of each row.

    The best measured cells are marked by the template `bold`, the rows of the oracle by `grey`.
    """
    import pandas as pd

    columns = table.statistic("mean").columns
    both = len(columns.unique("metric")) > 1
    heads = [task.replace(">", "→") + (f", {METRICS[metric]}" if both else "") for task, metric in columns]
    rows, seeds = [], table.seeds
    lines = zip(table.frame.index, table.frame.to_numpy(), table.best.to_numpy(), strict=True)
    for (kind, method), numbers, best in lines:
        title = method if kind == "measured" else f"{method} ({kind})"
        texts = [title, *(_cell_text(cell, seeds) for cell in numbers.reshape(len(heads), -1).tolist())]
        usual = grey if kind == "oracle" else "{}"
        marks = [usual, *(bold if is_best else usual for is_best in best)]
        rows.append([mark.format(escape(text)) if text else "" for text, mark in zip(texts, marks, strict=True)])
    kinds = table.frame.index.get_level_values("kind")
    return pd.DataFrame(rows, index=kinds, columns=[escape(head) for head in ("method", *heads)])


def _cell_text(cell: Sequence[float], usual_seeds: int) -> str:
    mean, deviation, seeds = cell
    if math.isnan(mean):
        return ""
    many = "" if math.isnan(seeds) or seeds == usual_seeds else f" (n = {seeds:.0f})"
    return Spread(mean, None if math.isnan(deviation) else deviation, None).text() + many


def terminal(tables: Sequence[ResultTable], width: int | None = None) -> str:
    """For a terminal of that width, in its colours; plain text without a width."""
    text = io.StringIO()
    running, wide = (
        Console(file=text, width=letters, force_terminal=width is not None) for letters in (width or WIDE, WIDE)
    )
    for table in tables:
        running.print(Text(table.caption))
        # In a narrow terminal the rows run over: rich would cut numbers short.
        wide.print(_rich_table(table))
        for note in table.notes:
            running.print(Text(note))
    return text.getvalue()


def _rich_table(table: ResultTable) -> Table:
    frame = shown(table, rich.markup.escape, "[bold]{}[/]", "[dim]{}[/]")
    drawn = Table()
    for number, head in enumerate(frame):
        drawn.add_column(head, justify="right" if number else "left")
    for _, part in frame.groupby(level=0, sort=False):
        for row in part.to_numpy():
            drawn.add_row(*row)
        drawn.add_section()
    return drawn


def markdown(tables: Sequence[ResultTable]) -> str:
    """Tables as GitHub shows them. Markdown has no grey: italics stand for it."""
    parts = []
    for table in tables:
        frame = shown(table, _markdown, "**{}**", "*{}*")
        rows = [list(frame), ["---", *["---:"] * (frame.shape[1] - 1)], *frame.to_numpy().tolist()]
        parts += [_markdown(table.caption), "\n".join(f"| {' | '.join(row)} |" for row in rows)]
        parts += map(_markdown, table.notes)
    return "\n\n".join(parts) + "\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def latex(tables: Sequence[ResultTable]) -> str:
    """Floating tables, which need the packages booktabs and xcolor."""
    parts = ["% \\usepackage{booktabs, xcolor}\n"]
    for table in tables:
        frame = shown(table, _latex, r"\textbf{{{}}}", r"\textcolor{{gray}}{{{}}}")
        first = ~frame.index.duplicated() & (frame.index != frame.index[0])  # of its kind, but for the first kind
        frame["method"] = frame["method"].mask(first, "\\midrule\n" + frame["method"])
        style, columns = frame.reset_index(drop=True).style.hide(), "l" + "r" * (frame.shape[1] - 1)
        text = style.to_latex(caption=_latex(table.caption), column_format=columns, hrules=True, **FLOAT)
        notes = "".join(f"\\par\\smallskip{{\\footnotesize {_latex(note)}}}\n" for note in table.notes)
        parts.append(text.replace("\\end{table*}", notes + "\\end{table*}"))
    return "".join(parts)


def _latex(text: str) -> str:
    return text.translate(LATEX)


def csv_text(tables: Sequence[ResultTable]) -> str:
    """One row per number, so that tables of several benchmarks are one CSV and every cell is a number."""
    import pandas as pd

    frames = []
    for table in tables:
        rules = {"measured": table.selection, "oracle": "oracle", "quoted": ""}
        cells = pd.DataFrame(table.frame.stack(["task", "metric"], future_stack=True)).dropna(subset=["mean"])
        cells = cells.map(lambda number: round(number, 2)).reset_index()
        cells.insert(0, "benchmark", table.benchmark)
        cells.insert(3, "selection", [rules[kind] for kind in cells["kind"]])
        frames.append(cells.astype({"seeds": "Int64"}))
    return pd.concat(frames).to_csv(index=False)


def html_table(table: ResultTable) -> str:
    """The table without its notes as an HTML element, with one `tbody` per kind of rows."""
    frame = shown(table, _html, "<strong>{}</strong>").set_index("method", append=True).rename_axis("method", axis=1)
    parts = []
    for kind, part in frame.groupby(level=0, sort=False):
        text = part.droplevel(0).rename_axis(None).to_html(escape=False, border=0, classes="results", justify="unset")
        head, _, body = text.partition("<tbody>")
        if not parts:
            head = head.replace("<thead>", f"<caption>{_html(table.caption)}</caption>\n<thead>", 1)
            parts.append(head.replace("<th>", '<th scope="col">'))
        parts.append(f'<tbody class="{kind}">' + body.replace("<th>", '<th scope="row">').removesuffix("</table>"))
    return "".join([*parts, "</table>\n"])


def _html(text: str) -> str:
    return html.escape(printable(text))


def html_page(tables: Sequence[ResultTable]) -> str:
    """A page that needs no other file."""
    head = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Results</title><style>{STYLE}</style>\n'
    parts = [html_table(table) + "".join(f"<p>{_html(note)}</p>\n" for note in table.notes) for table in tables]
    return "".join([head, *parts, "</html>\n"])


FORMATS: dict[Format, Callable[[Sequence[ResultTable]], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "csv": csv_text,
    "html": html_page,
}
