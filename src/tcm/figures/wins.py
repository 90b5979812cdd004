"""How many images each mechanism wins over the steps of stage 1, by domain and by class (TCM Section 3.1)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import east_asian_width

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tcm.analysis.curves import Curve, History, curve
from tcm.figures.confusion import NAMES_UP_TO, NUMBERS_UP_TO
from tcm.figures.curves import draw_line
from tcm.figures.steps import label_ends, mechanism_label, style_panel
from tcm.figures.svg import INK, SHADES, shortened, style_axes, visible

_KEY = re.compile(r"wins/(source|target)/(\d+)")
_CLASS_KEY = re.compile(r"class_wins/(\d+)/(.*)", re.DOTALL)
_LONGEST_NAME = 16


def wins_figure(history: History, numbers: Sequence[int] | None = None) -> Figure | None:
    """One panel per domain, one line per mechanism with its label at the end; None if no wins were logged.

    `numbers` are the numbers in the history of the mechanisms that are left; the others are labelled "dropped". Without
    `numbers`, as before the end of a run, the mechanisms in the last row count as left.
    """
    keys = {match.groups(): match.group() for row in history for key in row if (match := _KEY.fullmatch(key))}
    if not keys:
        return None
    figure = Figure(figsize=(9.2, 3.1), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    left = last_numbers(history) if numbers is None else numbers
    for side, axes in zip(("source", "target"), panels, strict=True):
        own = sorted(int(number) for domain, number in keys if domain == side)
        _draw(axes, side, {number: curve(history, keys[side, str(number)]) for number in own}, left)
    panels[0].set_ylabel("share of wins", color=INK, fontsize=8.5)
    return figure


def class_wins_figure(history: History, numbers: Sequence[int] | None = None) -> Figure | None:
    """The share of each class that each mechanism won at the last count: one row per mechanism, one column per class.

    A column adds up to 1 unless its class had no image since the count before. None if there was no count.
    `numbers` as in `wins_figure`.
    """
    counts = [found for row in history if (found := _class_shares(row))]
    if not counts:
        return None
    left = last_numbers(history) if numbers is None else numbers
    rows = sorted({number for number, _ in counts[-1]}, key=lambda number: (number not in left, number))
    classes = list(dict.fromkeys(name for _, name in counts[-1]))
    shares = np.array([[counts[-1].get((number, name), 0.0) for name in classes] for number in rows])
    names = [shortened(visible(name), _LONGEST_NAME) for name in classes]
    upright = max(map(len, names)) <= 3
    size = 8.5 if len(classes) <= NUMBERS_UP_TO else 6.5
    below = 0.0 if upright or len(classes) > NAMES_UP_TO else size / 72 * max(map(_length, names))
    figure = Figure(figsize=(9.2, 0.9 + 0.3 * len(rows) + below), layout="constrained")
    axes = figure.add_subplot()
    style_axes(axes)
    axes.imshow(SHADES(shares), interpolation="none", aspect="auto")
    axes.spines[:].set_visible(False)
    axes.set_xlabel("class", color=INK, fontsize=8.5)
    axes.set_ylabel("mechanism", color=INK, fontsize=8.5)
    axes.set_yticks(range(len(rows)), [mechanism_label(number, left) for number in rows], fontsize=8.5)
    if len(classes) <= NAMES_UP_TO:
        axes.set_xticks(range(len(names)), names, fontsize=size, rotation=0 if upright else 90, parse_math=False)
    else:
        axes.set_xticks([])
    axes.tick_params(length=0)
    _frame_cells(axes, shares)
    return figure


def _length(name: str) -> float:
    """The approximate length of a name in units of the font size; Chinese characters are twice as wide."""
    return sum(1.2 if east_asian_width(letter) in "WF" else 0.62 for letter in name)


def _class_shares(row: Mapping[str, Any]) -> dict[tuple[int, str], float]:
    found = ((_CLASS_KEY.fullmatch(key), value) for key, value in row.items())
    return {(int(match[1]), match[2]): value for match, value in found if match}


def _frame_cells(axes: Axes, shares: np.ndarray) -> None:
    """Thin lines between the cells and, where they fit, the shares in percent."""
    height, width = shares.shape
    axes.hlines(np.arange(height + 1) - 0.5, -0.5, width - 0.5, color=INK, alpha=0.14, linewidth=0.6)
    axes.vlines(np.arange(width + 1) - 0.5, -0.5, height - 0.5, color=INK, alpha=0.14, linewidth=0.6)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    if width > NUMBERS_UP_TO:
        return
    for row, column in np.argwhere(shares):
        share = shares[row, column]
        color = "white" if share > 0.75 else INK
        axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=8.5, color=color)


def last_numbers(history: History) -> list[int]:
    """The numbers of the mechanisms in the last row that has wins."""
    rows = [{int(match[2]) for key in row if (match := _KEY.fullmatch(key))} for row in history]
    return sorted(next((found for found in reversed(rows) if found), set()))


def _draw(axes: Axes, side: str, lines: dict[int, Curve], left: Sequence[int]) -> None:
    style_panel(axes, f"{side} images")
    axes.axhline(1 / max(len(left), 1), color=INK, alpha=0.5, linewidth=0.8, linestyle=(0, (1, 3)))
    drawn = [(mechanism_label(n, left), draw_line(axes, n, *line)) for n, line in lines.items() if len(line.at)]
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    label_ends(axes, drawn)
