"""How far each mechanism changes each factor of the digits: a shaded table of k x 4 numbers."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from tcm.data.digits import FACTORS
from tcm.figures.svg import INK, PALETTE, style_axes
from tcm.mechanisms.disentanglement import Disentanglement

_ORANGE, _BLUE = to_rgb(PALETTE[1]), to_rgb(PALETTE[0])
# By opacity, so that a factor that does not change has the colour of the page, light or dark.
_STOPS = [(0.0, (*_ORANGE, 0.55)), (0.5, (*_ORANGE, 0.0)), (0.5, (*_BLUE, 0.0)), (1.0, (*_BLUE, 0.55))]
_SHADES = LinearSegmentedColormap.from_list("shift", _STOPS)


def factors_figure(found: Disentanglement) -> Figure:
    """One row per mechanism, one column per factor: the mean shift of both directions; 1 is the whole domain gap.

    Below it, smaller, the shift to the target and the shift to the source. The leading factor is bold.
    """
    mean = found.mean_shifts
    figure = Figure(figsize=(6.2, 0.75 + 0.56 * len(mean)), layout="constrained")
    axes = figure.add_subplot()
    style_axes(axes)
    axes.imshow(_SHADES((np.clip(mean, -1, 1) + 1) / 2), interpolation="none", aspect="auto")
    axes.spines[:].set_visible(False)
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(FACTORS)), FACTORS, fontsize=9)
    axes.set_yticks(range(len(mean)), [f"mechanism {number + 1}" for number in range(len(mean))], fontsize=9)
    axes.tick_params(length=0)
    _write_numbers(axes, found)
    return figure


def _write_numbers(axes: Axes, found: Disentanglement) -> None:
    mean, there, back = found.mean_shifts, found.shifts["target"], found.shifts["source"]
    place: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
    for row, column in np.ndindex(mean.shape):
        weight = "bold" if FACTORS[column] == found.leading[row] else "normal"
        axes.text(column, row - 0.13, f"{mean[row, column]:+.2f}", fontsize=10, fontweight=weight, **place)
        both = f"{there[row, column]:+.2f} / {back[row, column]:+.2f}"
        axes.text(column, row + 0.22, both, fontsize=7, **place)
