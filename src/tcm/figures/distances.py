"""Frechet distances of transported images to the other domain over the steps of stage 1."""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from tcm.analysis.curves import Curve, History, curve
from tcm.figures.curves import draw_line
from tcm.figures.steps import label_ends, mechanism_label, style_panel
from tcm.figures.svg import INK
from tcm.figures.wins import last_numbers

DIRECTIONS = {"source to target": "target", "target to source": "source"}
_KEY = re.compile(r"frechet/(source|target)/(\d+)")


def distances_figure(history: History, numbers: Sequence[int] | None = None) -> Figure | None:
    """One panel per direction: the Frechet distances of all mechanisms together and, thinner, of each of them.

    None if the run did not measure them. `numbers` as in `wins_figure`.
    """
    untouched = curve(history, "frechet/untouched")
    if not len(untouched.at):
        return None
    figure = Figure(figsize=(9.2, 3.1), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    left = last_numbers(history) if numbers is None else numbers
    drawn = []
    for (title, to), axes in zip(DIRECTIONS.items(), panels, strict=True):
        style_panel(axes, title)
        drawn.append([("untouched", _draw_untouched(axes, untouched)), *_draw_made(axes, history, to, left)])
    for axes, lines in zip(panels, drawn, strict=True):  # after both have set the common limits
        label_ends(axes, lines)
    panels[0].yaxis.set_major_locator(MaxNLocator(5))
    panels[0].set_ylabel("Frechet distance", color=INK, fontsize=8.5)
    return figure


def _draw_untouched(axes: Axes, line: Curve) -> Line2D:
    """The distance between the untouched domains. It changes if a resumed run measures other images."""
    steps, values = np.concatenate([[0], line.at]), np.concatenate([line.values[:1], line.values])
    (drawn,) = axes.plot(steps, values, color=INK, alpha=0.7, linewidth=1.1, linestyle="--", drawstyle="steps-pre")
    return drawn


def _draw_made(axes: Axes, history: History, to: str, left: Sequence[int]) -> list[tuple[str, Line2D]]:
    """The label and line of each mechanism and, if the critics see them combined, of all together."""
    found = {int(match[2]) for row in history for key in row if (match := _KEY.fullmatch(key)) and match[1] == to}
    lines = []
    for number in sorted(found):
        values = curve(history, f"frechet/{to}/{number}")
        if len(values.at):
            line = draw_line(axes, number, *values)
            line.set(linewidth=0.9, markersize=3)
            lines.append((mechanism_label(number, left), line))
    together = curve(history, f"frechet/{to}/together")
    if len(together.at):
        (line,) = axes.plot(together.at, together.values, color=INK, linewidth=2.4, marker="o", markersize=4, zorder=3)
        line.set_markevery(max(1, len(together.at) // 8))
        lines.append(("all", line))
    return lines
