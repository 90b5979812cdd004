"""A contact sheet: images of each domain, as they are and as training sees them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tcm.data.samples import VIEWS, SampleViews
from tcm.figures.svg import INK, shortened, visible

_CELL = 0.95  # inches of a cell
_HEADS = {0: "as stored", 1: "weak views", 1 + VIEWS: "strong views"}
_SHARP_UP_TO = 64  # side of images that are drawn pixel by pixel


def samples_figure(domains: Sequence[SampleViews]) -> Figure:
    """One block per domain: a row per image, with the centre crop, then its weak and its strong views."""
    rows = [len(domain.originals) for domain in domains]
    columns = 1 + 2 * VIEWS
    figure = Figure(
        figsize=(_CELL * (columns + 1), _CELL * (sum(rows) + 0.6 * len(rows))), layout="constrained", facecolor="white"
    )
    blocks = figure.subfigures(len(domains), 1, height_ratios=rows, squeeze=False)[:, 0]
    for block, domain in zip(blocks, domains, strict=True):
        block.suptitle(
            shortened(visible(domain.domain), 60), color=INK, fontsize=11, fontweight="bold", x=0.02, ha="left"
        )
        cells = block.subplots(len(domain.originals), columns, squeeze=False)
        for row, line in enumerate(cells):
            views = [domain.originals[row], *domain.weak[row], *domain.strong[row]]
            for column, (axes, image) in enumerate(zip(line, views, strict=True)):
                _show(axes, image)
                if row == 0 and column in _HEADS:
                    axes.set_title(_HEADS[column], color=INK, fontsize=9, loc="left")
            name = shortened(visible(domain.classes[row]), 12)
            line[0].set_ylabel(name, color=INK, fontsize=8, parse_math=False)
    return figure


def _show(axes: Axes, image: np.ndarray) -> None:
    axes.imshow(image, interpolation="nearest" if image.shape[0] <= _SHARP_UP_TO else "antialiased")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
