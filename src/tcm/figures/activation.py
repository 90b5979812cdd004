"""Activation maps of several runs on the same images, as in TCM Figure 8."""

import textwrap

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tcm.analysis.grad_cam import ActivationComparison, Maps
from tcm.figures.mechanisms import SHARP_UP_TO
from tcm.figures.svg import INK, PALETTE, shortened, visible

_CELL, _GAP = 1.25, 0.07  # inches that a cell takes; of it, between images
_LEFT, _HEAD, _FOOT = 1.0, 0.55, 0.06  # cells on the left of the images, above and below them
_LINE, _LETTER = 0.18, 0.055  # cells that a line of the notes below takes, and a letter of it
_BETWEEN = 0.3  # cells between the runs and the views
# By opacity over a grey image, so that strength does not depend on seeing colours.
_HEAT = LinearSegmentedColormap.from_list("heat", [(*to_rgb(PALETTE[1]), 0.0), (*to_rgb(PALETTE[1]), 0.85)])
_NOTE = (
    "Stronger colour: speaks more for the predicted class (Grad-CAM; line: half of the maximum). No colour: nothing in "
    "the image speaks for it."
)


def activation_figure(found: ActivationComparison) -> Figure:
    """One row per image: the image, the map of each run, and for a run with several views the map of each view."""
    rows, several = len(found.true), [run for run in found.runs if len(run.views) > 1]
    columns = 1 + len(found.runs) + sum(len(run.views) for run in several)
    width = _LEFT + columns + _BETWEEN * (len(several) + 1)
    notes = [line for text in (_NOTE, found.counts) for line in textwrap.wrap(text, int((width - _LEFT) / _LETTER))]
    height = _HEAD + 1.28 * rows + _FOOT + _LINE * len(notes)
    figure = Figure(figsize=(_CELL * width, _CELL * height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-_LEFT, width - _LEFT), ylim=(height - _HEAD, -_HEAD))
    axes.set_axis_off()
    for row, name in enumerate(found.true):
        _write(axes, -0.07, _top(row) + 0.5, shortened(visible(name) or "unlabelled", 14), ha="right")
        if found.sources:
            _write(axes, -0.07, _top(row) + 0.66, "source" if row < found.sources else "target", size=7.5, ha="right")
    _draw_image(axes, found.runs[0])
    for number, run in enumerate(found.runs):
        _draw_combined(axes, run, found.true, 1 + _BETWEEN / 2 + number)
    left = 1 + len(found.runs) + _BETWEEN
    for run in several:
        _draw_views(axes, run, left)
        left += len(run.views) + _BETWEEN
    for number, line in enumerate(reversed(notes)):
        _write(axes, 0, height - _HEAD - 0.12 - _LINE * number, line, size=8, ha="left")
    return figure


def _draw_image(axes: Axes, run: Maps) -> None:
    _write(axes, 0.5, -0.12, "image", size=10)
    for row, image in enumerate(run.views[0]):
        _show(axes, image, 0, row)


def _draw_combined(axes: Axes, run: Maps, true: list[str], left: float) -> None:
    # Details are below the method: both together are wider than the cell.
    method, _, details = visible(run.title).partition(", ")
    _write(axes, left + 0.5, -0.27 if details else -0.12, shortened(method, 14), size=10, weight="bold")
    _write(axes, left + 0.5, -0.09, shortened(details, 20), size=7.5)
    for row, (image, heat) in enumerate(zip(run.views[0], run.combined, strict=True)):
        _show(axes, image, left, row, heat / max(heat.max(), 1e-12))
        mark = "" if not true[row] else ("✓ " if run.predicted[row] == true[row] else "✗ ")
        _write(axes, left + 0.5, _top(row) + 1.08, mark + shortened(visible(run.predicted[row]), 15), size=8)


def _draw_views(axes: Axes, run: Maps, left: float) -> None:
    """The views of an image, on one scale: a view that adds little is pale."""
    heads = ["$x$", *(f"$\\hat{{x}}_{{{number}}}$" for number in range(1, len(run.views)))]
    _write(axes, left + len(heads) / 2, -0.4, f"parts of {shortened(visible(run.title), 14 * len(heads))}", size=9)
    strongest = run.maps.max(axis=(0, 2, 3)).clip(min=1e-12)
    for column, (head, images, maps) in enumerate(zip(heads, run.views, run.maps, strict=True)):
        axes.text(left + column + 0.5, -0.12, head, color=INK, fontsize=11, ha="center", va="center")
        for row, (image, heat) in enumerate(zip(images, maps, strict=True)):
            _show(axes, image, left + column, row, heat.clip(min=0) / strongest[row])


def _show(axes: Axes, image: NDArray[np.uint8], left: float, row: int, heat: NDArray[np.float32] | None = None) -> None:
    """The image in its cell; with a map in [0, 1], the map over the image in pale grey."""
    side = 1 - _GAP
    x, y = left + _GAP / 2, _top(row) + _GAP / 2
    place = {"extent": (x, x + side, y + side, y), "aspect": "auto"}
    method = "nearest" if max(image.shape[:2]) <= SHARP_UP_TO else "antialiased"
    limits = axes.get_xlim(), axes.get_ylim()  # imshow would set them to those of the image
    if heat is None:
        axes.imshow(image, interpolation=method, **place)
    else:
        grey = image.mean(axis=2) / 255
        axes.imshow(0.5 + 0.5 * grey, cmap="gray", vmin=0, vmax=1, interpolation=method, **place)
        large = upsampled(heat, image.shape[0])
        axes.imshow(_HEAT(large), interpolation="nearest", **place)
        if large.max() > 0.5 > large.min():
            at = (np.arange(len(large)) + 0.5) / len(large) * side
            axes.contour(x + at, y + at, large, levels=[0.5], colors=INK, linewidths=0.9)
    axes.set(xlim=limits[0], ylim=limits[1])


def upsampled(heat: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """The map [height, width], interpolated to the size of the image."""
    return F.interpolate(torch.from_numpy(heat)[None, None], (side, side), mode="bilinear")[0, 0].numpy()


def _write(
    axes: Axes, x: float, y: float, text: str, *, size: float = 9, ha: str = "center", weight: str = "normal"
) -> None:
    style = {"color": INK, "fontsize": size, "fontweight": weight, "ha": ha, "va": "center"}
    axes.text(x, y, text, style, parse_math=False)


def _top(row: int) -> float:
    return 1.28 * row
