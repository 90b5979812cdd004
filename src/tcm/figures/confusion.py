"""The confusion matrix as a heatmap, from two classes to hundreds."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tcm.figures.svg import INK, SHADES, shortened, style_axes, visible

NUMBERS_UP_TO = 20  # classes whose counts still fit into the cells
NAMES_UP_TO = 80  # classes whose names still fit along the axes

_LONGEST_NAME = 22


def confusion_figure(matrix: np.ndarray, classes: Sequence[str]) -> Figure:
    """A heatmap of the counts in `matrix` [true, predicted]; the shade is the share of the true class.

    Up to 20 classes the cells show their counts, up to 80 the axes have the names of the classes.
    """
    count = len(classes)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    side = float(np.clip(1.6 + 0.36 * count, 3.6, 9.6))
    figure = Figure(figsize=(side + 0.6, side), layout="constrained")
    axes = figure.add_subplot()
    style_axes(axes)
    # The square root makes rare confusions visible.
    axes.imshow(SHADES(np.sqrt(shares)), interpolation="none", aspect="equal")
    axes.set_xlabel("predicted class", color=INK, fontsize=9)
    axes.set_ylabel("true class", color=INK, fontsize=9)
    axes.spines[:].set_visible(False)
    _name_classes(axes, classes)
    _draw_cell_lines(axes, count)
    if count <= NUMBERS_UP_TO:
        _write_counts(axes, matrix, shares)
    _draw_scale(axes)
    return figure


def _name_classes(axes: Axes, classes: Sequence[str]) -> None:
    if len(classes) > NAMES_UP_TO:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    names = [shortened(visible(name), _LONGEST_NAME) for name in classes]
    size = 8.5 if len(classes) <= NUMBERS_UP_TO else max(5.5, 9 - len(classes) / 18)
    upright = max(len(name) for name in names) <= 3
    axes.set_xticks(range(len(names)), names, fontsize=size, rotation=0 if upright else 90, parse_math=False)
    axes.set_yticks(range(len(names)), names, fontsize=size, parse_math=False)
    axes.tick_params(length=0)


def _draw_cell_lines(axes: Axes, count: int) -> None:
    edges = np.arange(count + 1) - 0.5
    faint = 0.14 if count <= NUMBERS_UP_TO else 0.06
    axes.hlines(edges, -0.5, count - 0.5, color=INK, alpha=faint, linewidth=0.6)
    axes.vlines(edges, -0.5, count - 0.5, color=INK, alpha=faint, linewidth=0.6)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5))


def _write_counts(axes: Axes, matrix: np.ndarray, shares: np.ndarray) -> None:
    size = 8.5 if matrix.max() < 1000 else 7.0
    for true, predicted in np.argwhere(matrix):
        color = "white" if shares[true, predicted] > 0.7 else INK
        number = str(int(matrix[true, predicted]))
        axes.text(predicted, true, number, ha="center", va="center", fontsize=size, color=color)


def _draw_scale(axes: Axes) -> None:
    scale = axes.inset_axes((1.03, 0.0, 0.025, 1.0))
    style_axes(scale)
    ramp = np.sqrt(np.linspace(1, 0, 100))[:, None]
    scale.imshow(SHADES(ramp), interpolation="none", aspect="auto", extent=(0, 1, 0, 1))
    scale.spines[:].set_visible(False)
    scale.set_xticks([])
    scale.yaxis.tick_right()
    scale.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    scale.set_title("share of\ntrue class", fontsize=7.5, color=INK, loc="left")
