"""Accuracy against minutes and against memory: one point per method."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from tcm.analysis.tradeoff import Effort, Tradeoff
from tcm.figures.svg import INK, PALETTE, shortened, style_axes, visible

_LONG = 34  # letters of a label
_POINT, _LETTER, _LINE = 4.0, 4.6, 9.5  # sizes in points: of a mark, and of a letter of its label


def tradeoff_figure(found: Tradeoff) -> Figure:
    """One panel with minutes of training and, if there are rows with memory, one with GPU memory."""
    measured = [one for one in found.efforts if one.memory is not None]
    panels = 2 if measured else 1
    figure = Figure(figsize=(2 + 5.2 * panels, 5.2), layout="constrained", facecolor="white")
    left, *right = np.ravel(figure.subplots(1, panels, sharey=True))
    for axes in (left, *right):
        style_axes(axes)
        axes.grid(color=INK, alpha=0.12, linewidth=0.8)
    device = shortened(visible(found.device), 40)
    note = "" if measured else "\nThere is no panel of GPU memory, because no row has it."
    left.set_xscale("log")
    left.set_xlabel(f"minutes of training on {device}, without stage 1{note}", color=INK, fontsize=9.5)
    left.set_ylabel(f"target accuracy, {visible(found.task)}, %", color=INK, fontsize=9.5, parse_math=False)
    left.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    left.xaxis.set_minor_formatter(NullFormatter())
    _draw(figure, left, found.efforts, [one.minutes for one in found.efforts])
    for axes in right:
        axes.set_xlabel("GPU memory, GB", color=INK, fontsize=9.5)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        _draw(figure, axes, measured, [one.memory or 0.0 for one in measured])
    return figure


def _draw(figure: Figure, axes: Axes, efforts: Sequence[Effort], along: Sequence[float]) -> None:
    heights = [one.accuracy.mean for one in efforts]
    errors = [one.accuracy.deviation or 0.0 for one in efforts]
    style = {"fmt": "o", "color": PALETTE[0], "ecolor": INK, "elinewidth": 0.7, "markersize": _POINT}
    if min(along) == max(along) > 0:
        axes.set_xlim(along[0] / 2, along[0] * 2)  # equal values span no axis
    axes.errorbar(along, heights, yerr=errors, **style)
    axes.margins(x=0.2, y=0.1)
    figure.draw_without_rendering()  # labels are placed by their distances on the page
    points = axes.transData.transform(np.column_stack([along, heights])) * 72 / figure.dpi
    for one, at, offset in zip(efforts, zip(along, heights, strict=True), _offsets(points, efforts), strict=True):
        line = {"arrowstyle": "-", "color": INK, "alpha": 0.5, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2}
        place = {"textcoords": "offset points", "fontsize": 8, "color": INK, "va": "center", "parse_math": False}
        place["arrowprops"] = line if abs(offset[1]) > _LINE else None
        axes.annotate(_text(one), at, offset, ha="left" if offset[0] > 0 else "right", **place)


def _text(one: Effort) -> str:
    return shortened(visible(one.label), _LONG)


def _offsets(points: np.ndarray, efforts: Sequence[Effort]) -> list[tuple[float, float]]:
    """Where each label stands from its point, in points: beside it, and over no other label or mark if possible."""
    marks = [(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y in points]
    taken: list[tuple[float, float, float, float]] = []
    found = []
    for number in np.argsort(-points[:, 1], kind="stable"):
        width = _LETTER * len(_text(efforts[number]))
        others = [*taken, *(mark for other, mark in enumerate(marks) if other != number)]
        heights = sorted(range(-8, 9), key=lambda height: (abs(height), -height))
        choices = [(side * 6.0, height * _LINE * 0.6) for height in heights for side in (1, -1)]
        boxes = {choice: _box(points[number], choice, width) for choice in choices}
        free = (choice for choice, box in boxes.items() if not any(_meet(box, other) for other in others))
        chosen = next(free, choices[0])
        taken.append(boxes[chosen])
        found.append((number, chosen))
    return [chosen for _, chosen in sorted(found)]


def _box(point: np.ndarray, offset: tuple[float, float], width: float) -> tuple[float, float, float, float]:
    x, y = point[0] + offset[0], point[1] + offset[1]
    left = x if offset[0] > 0 else x - width
    return left, y - _LINE / 2, left + width, y + _LINE / 2


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
