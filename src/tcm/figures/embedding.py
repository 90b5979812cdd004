"""Features of both domains as points of a plane, runs side by side: Figure 7 of the paper."""

from collections.abc import Sequence

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tcm.embedding import Embedding
from tcm.figures.svg import INK, PALETTE, shortened, visible

_NAMES_UP_TO = 15  # classes whose names still fit among the points
# Told apart by shape and fill, so that neither colours nor a good eye for them are needed.
_SOURCE = {"marker": "o", "facecolors": "none", "edgecolors": PALETTE[0], "linewidths": 0.9, "s": 20}
_TARGET = {"marker": "^", "facecolors": PALETTE[1], "edgecolors": "white", "linewidths": 0.3, "s": 24}


def embedding_figure(embeddings: Sequence[Embedding]) -> Figure:
    """One panel a run, its proxy A-distance below it; source images are open circles, target images full triangles."""
    figure = Figure(figsize=(4.7 * len(embeddings), 5.4), layout="constrained", facecolor="white")
    for panel, embedding in zip(np.ravel(figure.subplots(1, len(embeddings))), embeddings, strict=True):
        _draw(panel, embedding)
    source, target = (shortened(visible(name), 30) for name in embeddings[0].domains)
    handles = figure.axes[0].collections[:2]
    legend = figure.legend(
        handles,
        [f"source: {source}", f"target: {target}"],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=10,
        labelcolor=INK,
        markerscale=1.6,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _draw(axes: Axes, embedding: Embedding) -> None:
    for kind, style in ((False, _SOURCE), (True, _TARGET)):
        axes.scatter(*embedding.points[embedding.is_target == kind].T, **style)
    _name_classes(axes, embedding)
    axes.set(xticks=[], yticks=[])
    axes.set_box_aspect(1)
    for spine in axes.spines.values():
        spine.set(color=INK, alpha=0.45, linewidth=0.8)
    axes.set_title(visible(embedding.title), color=INK, fontsize=12, parse_math=False)
    axes.set_xlabel(f"proxy A-distance {embedding.distance:.2f}", color=INK, fontsize=10.5)


def _name_classes(axes: Axes, embedding: Embedding) -> None:
    if len(embedding.classes) > _NAMES_UP_TO:
        return
    halo = [patheffects.withStroke(linewidth=2.5, foreground="white")]
    for number, name in enumerate(embedding.classes):
        members = embedding.points[(embedding.labels == number) & ~embedding.is_target]
        if not len(members):
            continue
        # The member nearest to the middle: a class in two clusters is named in one of them, not between.
        middle = members[np.square(members - np.median(members, axis=0)).sum(axis=1).argmin()]
        style = {"color": INK, "fontsize": 8.5, "fontweight": "bold"}
        label = axes.text(middle[0], middle[1], shortened(visible(name), 14), style)
        label.set(ha="center", va="center", path_effects=halo, parse_math=False)
