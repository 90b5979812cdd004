"""Shared parts of figures of mechanisms over the steps: panels, and labels at the ends of lines."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from tcm.figures.svg import INK, style_axes

_ROOM = 0.0625  # height of a label, as a share of the axis
_TOP = 0.955  # height of the first label of lines that end early, as a share of the axis


def style_panel(axes: Axes, title: str) -> None:
    """Plain axes with steps on the horizontal axis and a title at the left."""
    style_axes(axes)
    axes.set_title(title, color=INK, fontsize=9.5, loc="left")
    axes.set_xlabel("step", color=INK, fontsize=8.5)
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def mechanism_label(number: int, left: Sequence[int]) -> str:
    """The place of a mechanism among those that are left, from 1."""
    return str(left.index(number) + 1) if number in left else "dropped"


def label_ends(axes: Axes, lines: Sequence[tuple[str, Line2D]]) -> None:
    """Writes the label of each line at the right edge, or above its end if it ends earlier, and fixes the limits."""
    axes.set(xlim=(0, axes.get_xlim()[1]), ylim=axes.get_ylim())
    low, high = axes.get_ylim()
    ends = [np.asarray(line.get_xydata())[-1].tolist() for _, line in lines]
    steps = sorted({step for step, _ in ends})
    for step in steps:
        here = [place for place, end in enumerate(ends) if end[0] == step]
        if step == steps[-1]:
            where, unit = 1.015, "axes fraction"
            heights = spaced([(ends[place][1] - low) / (high - low) for place in here], _ROOM)
        else:
            where, unit, heights = step, "data", [_TOP - _ROOM * i for i in range(len(here))]
        for place, height in zip(here, heights, strict=True):
            name, color = lines[place][0], lines[place][1].get_color()
            at = {"xy": (where, height), "xycoords": (unit, "axes fraction"), "annotation_clip": False, "va": "center"}
            axes.annotate(name, **at, color=color, fontsize=9, fontweight="bold")
            if unit == "data":
                axes.vlines(step, ends[place][1], high, color=color, linewidth=0.8, alpha=0.5)


def spaced(heights: list[float], room: float) -> list[float]:
    """The heights, moved apart so that any two differ by `room` at least, in the same order."""
    order = np.argsort(heights, kind="stable")
    # Without the ranks' room the heights must not decrease: the nearest such sequence (pool adjacent violators).
    blocks: list[tuple[float, int]] = []
    for rank, place in enumerate(order):
        blocks.append((heights[place] - rank * room, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (low, many), (high, more) = blocks[-2:]
            blocks[-2:] = [((low * many + high * more) / (many + more), many + more)]
    flat = [value for value, many in blocks for _ in range(many)]
    moved = np.empty(len(heights))
    moved[order] = np.array(flat) + room * np.arange(len(heights))
    return moved.tolist()
