"""Features of both domains as points in two dimensions, runs side by side, as in TCM Figure 7."""

from collections.abc import Sequence

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tcm.analysis.embedding import Embedding
from tcm.figures.svg import INK, PALETTE, shortened, visible

_NAMES_UP_TO = 15  # classes whose names still fit among the points
_LETTER = np.array([0.0175, 0.034])  # width and height of a letter of a name, as shares of the panel
# Different in shape and fill, so that colours are not needed.
_SOURCE = {"marker": "o", "facecolors": "none", "edgecolors": PALETTE[0], "linewidths": 0.9, "s": 20}
_TARGET = {"marker": "^", "facecolors": PALETTE[1], "edgecolors": "white", "linewidths": 0.3, "s": 24}


def embedding_figure(embeddings: Sequence[Embedding]) -> Figure:
    """One panel per run, its proxy A-distance below; source images are open circles, target images full triangles."""
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
    """Writes the name of each class on one of its source points, inside the panel and over no other if possible."""
    if len(embedding.classes) > _NAMES_UP_TO:
        return
    halo = [patheffects.withStroke(linewidth=2.5, foreground="white")]
    limits = np.array([axes.get_xlim(), axes.get_ylim()])
    centre, span = limits.mean(axis=1), np.ptp(limits, axis=1)
    taken: list[tuple[np.ndarray, np.ndarray]] = []  # middle and size of each name
    for number, name in enumerate(embedding.classes):
        members = embedding.points[(embedding.labels == number) & ~embedding.is_target]
        if not len(members):
            continue
        text = shortened(visible(name), 14)
        size = span * _LETTER * (len(text), 1)
        # The member nearest to the middle: a class in two clusters is named in one of them, not between.
        nearest = members[np.square(members - np.median(members, axis=0)).sum(axis=1).argsort(kind="stable")]
        within = nearest[(abs(nearest - centre) < (span - size) / 2).all(axis=1)]
        free = (at for at in within if all((abs(at - other) > (size + its) / 2).any() for other, its in taken))
        middle = next(free, nearest[0])
        taken.append((middle, size))
        label = axes.text(middle[0], middle[1], text, {"color": INK, "fontsize": 8.5, "fontweight": "bold"})
        label.set(ha="center", va="center", path_effects=halo, parse_math=False)
