"""Images and their counterfactuals under all mechanisms, the winner outlined, as in TCM Figure 4."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tcm.figures.svg import INK, shortened, visible
from tcm.mechanisms.gallery import Gallery

WINNER = "#e3120b"  # the paper's red outline
SHARP_UP_TO = 64  # side of images that are drawn pixel by pixel; larger ones are smoothed

_CELL = 0.92  # inches of a cell
_GAP = 0.08  # of a cell, between images
_MARGIN, _HEAD, _FOOT = 0.95, 0.95, 0.4  # cells on the left of a gallery, above it and below it
_AFTER_ORIGINAL = 0.25  # of a cell, between the originals and their counterfactuals


def mechanisms_figure(galleries: Sequence[Gallery]) -> Figure:
    """The galleries side by side: one row per image, the original first, then the k counterfactuals."""
    rows = max(len(gallery.originals) for gallery in galleries)
    columns = 1 + max(gallery.counterfactuals.shape[1] for gallery in galleries)
    width, height = _MARGIN + columns + _AFTER_ORIGINAL + _GAP, _HEAD + rows
    foot = _FOOT / (height + _FOOT)
    figure = Figure(figsize=(_CELL * len(galleries) * width, _CELL * (height + _FOOT)), facecolor="white")
    for number, gallery in enumerate(galleries):
        axes = figure.add_axes((number / len(galleries), foot, 1 / len(galleries), 1 - foot))
        axes.set(xlim=(-_MARGIN, width - _MARGIN), ylim=(rows, -_HEAD))
        axes.set_axis_off()
        _draw(axes, gallery)
    figure.text(
        0.012, 0.012, "Outlined in red: the winner, the mechanism with the smallest loss.", color=INK, fontsize=9
    )
    return figure


def _draw(axes: Axes, gallery: Gallery) -> None:
    goal = "target" if gallery.origin == "source" else "source"
    axes.text(0, -0.62, f"{gallery.origin} to {goal}", color=INK, fontsize=12, fontweight="bold")
    names = shortened(f"{visible(gallery.domain)} → {visible(gallery.other)}", 44)
    axes.text(0, -0.38, names, color=INK, fontsize=8.5, parse_math=False)
    inverse = "" if goal == "target" else "^{-1}"
    heads = ["original", *(f"$M_{{{i + 1}}}{inverse}$" for i in range(gallery.counterfactuals.shape[1]))]
    for column, head in enumerate(heads):
        axes.text(_left(column) + 0.5, -0.06, head, color=INK, fontsize=9.5, ha="center", va="bottom")
    for row, original in enumerate(gallery.originals):
        name = shortened(visible(gallery.classes[row]), 11)
        axes.text(-0.06, row + 0.5, name, color=INK, fontsize=8, ha="right", va="center", parse_math=False)
        for column, image in enumerate((original, *gallery.counterfactuals[row])):
            _show(axes, image, column, row, outlined=column == gallery.winner[row] + 1)


def _show(axes: Axes, image: np.ndarray, column: int, row: int, outlined: bool) -> None:
    left, top, side = _left(column) + _GAP / 2, row + _GAP / 2, 1 - _GAP
    method = "nearest" if max(image.shape[:2]) <= SHARP_UP_TO else "antialiased"
    # imshow would set the axes' limits to those of the image.
    limits = axes.get_xlim(), axes.get_ylim()
    axes.imshow(image, extent=(left, left + side, top + side, top), interpolation=method, aspect="auto")
    axes.set(xlim=limits[0], ylim=limits[1])
    if outlined:
        frame = {"fill": False, "edgecolor": WINNER, "linewidth": 2.6}
        axes.add_patch(Rectangle((left, top), side, side, **frame))


def _left(column: int) -> float:
    return column + (_AFTER_ORIGINAL if column else 0.0)
