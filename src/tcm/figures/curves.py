"""Learning curves: one small figure per quantity, with one line per run or per mean over seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator

from tcm.analysis.curves import History, Series, curve, is_number
from tcm.figures.svg import INK, PALETTE, style_axes, visible

# With more points than this a line shows a running mean over a 50th of its length, the raw values faint behind it.
SMOOTH_ABOVE = 120

_NOT_DRAWN = {
    "step",
    "lr",
    "images_per_second",
    "seconds",
    "memory",
    "source/mean_class_accuracy",
    "unused",
    "k",
    "head/lost",
}
# `wins_figure` and `distances_figure` draw these, and the page has a table of selection scores.
_ELSEWHERE = ("wins/", "class_wins/", "usage/", "frechet/", "select/")
_LEAST_RANGE = 0.02  # of an accuracy axis, so that tiny changes look small
_LONG = 26  # letters of a label beyond which two do not fit side by side
_LINES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_NAMES = {
    "source/accuracy": "Source accuracy",
    "target/accuracy": "Target accuracy",
    "target/mean_class_accuracy": "Target accuracy, mean per class",
}


def learning_curves(histories: Mapping[str, History]) -> dict[str, Figure]:
    """One figure per logged quantity, by title, accuracies first; `histories` maps the label of a run to its rows.

    The accuracies of a single run are in one figure.
    """
    keys = _drawn_keys(row for history in histories.values() for row in history)
    figures: dict[str, Figure] = {}
    if len(histories) == 1:
        (history,) = histories.values()
        together = {_name(key): curve(history, key) for key in keys if key in _NAMES}
        if together:
            figures["Accuracy" if len(together) > 1 else next(iter(together))] = curves_figure(together, percent=True)
        keys = [key for key in keys if key not in _NAMES]
    for key in keys:
        series = {label: curve(history, key) for label, history in histories.items()}
        figures[_name(key)] = curves_figure(series, percent=key.endswith("accuracy"))
    return figures


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean over a centred window, which is smaller at both ends; as long as `values`."""
    kernel = np.ones(window)
    return np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same")


def _drawn_keys(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    items = ((key, value) for row in rows for key, value in row.items() if not key.startswith(_ELSEWHERE))
    found = dict.fromkeys(key for key, value in items if key not in _NOT_DRAWN and is_number(value))
    first = [key for key in ("target/accuracy", "target/mean_class_accuracy", "source/accuracy") if key in found]
    losses = [key for key in found if key.startswith("loss/")]
    return [*first, *losses, *(key for key in found if key not in {*first, *losses})]


def _name(key: str) -> str:
    plain = key.replace("/", ": ").replace("_", " ")
    return _NAMES.get(key, plain[:1].upper() + plain[1:])


def curves_figure(
    series: Series, *, percent: bool, along: str = "step", up: str = "", ticks: Sequence[int] = ()
) -> Figure:
    """The figure of these lines. The style of a line depends on its place in `series`: a run looks the same everywhere.

    `along` and `up` are the labels of the axes; `ticks` are the only marks on the horizontal axis, if given.
    """
    drawn = {label: index for index, (label, line) in enumerate(series.items()) if len(line.at)}
    banded = any(line.deviation is not None for line in series.values())
    named = len(series) > 1 or banded
    columns = 1 if max(map(len, drawn), default=0) > _LONG else 2
    rows = math.ceil(len(drawn) / columns) + banded if named else 0
    figure = Figure(figsize=(4.6, 2.7 + 0.2 * rows), layout="constrained")
    axes = figure.add_subplot()
    style_axes(axes)
    lines = [draw_line(axes, index, *series[label]) for label, index in drawn.items()]
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
    axes.set_xlabel(along, color=INK, fontsize=8.5)
    axes.set_ylabel(up, color=INK, fontsize=8.5)
    if not ticks:
        axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(FixedLocator(ticks) if ticks else MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if percent:
        mark_percent(axes)
    if named:
        title = "band: mean ± standard deviation over seeds" if banded else None
        _write_legend(figure, lines, list(drawn), columns, title)
    return figure


def mark_percent(axes: Axes) -> None:
    """Shows shares as percentages on the vertical axis, over a range of at least two."""
    low, high = axes.get_ylim()
    if high - low < _LEAST_RANGE:
        axes.set_ylim((low + high - _LEAST_RANGE) / 2, (low + high + _LEAST_RANGE) / 2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")


def _write_legend(
    figure: Figure, lines: Sequence[Line2D], labels: Sequence[str], columns: int, title: str | None
) -> None:
    place = {"loc": "outside lower center", "ncols": columns, "handlelength": 3, "title": title, "title_fontsize": 8}
    names = [visible(label) for label in labels]
    legend = figure.legend(lines, names, **place, frameon=False, fontsize=8.5, labelcolor=INK)
    legend.get_title().set_color(INK)
    for text in legend.get_texts():
        text.set_parse_math(False)


def draw_line(
    axes: Axes, index: int, steps: np.ndarray, values: np.ndarray, deviation: np.ndarray | None = None
) -> Line2D:
    """Draws the line in the colour, style and marker of that index; smoothed if it is long."""
    color = PALETTE[index % len(PALETTE)]
    if deviation is not None:
        axes.fill_between(steps, values - deviation, values + deviation, color=color, alpha=0.18, linewidth=0)
    if len(steps) > SMOOTH_ABOVE:
        axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.7)
        values = running_mean(values, len(values) // 50)
    (line,) = axes.plot(steps, values, color=color, linewidth=1.6, markersize=4)
    line.set(linestyle=_LINES[index % len(_LINES)], marker=_MARKERS[index % len(_MARKERS)])
    line.set_markevery(max(1, len(steps) // 8))
    return line
