"""The reliability curve: accuracy against confidence."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from tcm.figures.svg import INK, PALETTE, style_axes


def reliability_figure(confidence: Sequence[float], accuracy: Sequence[float], images: Sequence[int]) -> Figure:
    """A point per bin at its mean confidence and its accuracy, larger with more images. Dotted: perfect calibration."""
    figure = Figure(figsize=(4.2, 3.4), layout="constrained")
    axes = figure.add_subplot()
    style_axes(axes)
    axes.plot([0, 1], [0, 1], color=INK, alpha=0.5, linewidth=1, linestyle=":")
    axes.plot(confidence, accuracy, color=PALETTE[0], linewidth=1.4)
    most = max(images, default=1)
    axes.scatter(confidence, accuracy, [12 + 90 * count / most for count in images], color=PALETTE[0], zorder=3)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axes.set_xticks(ticks, [f"{100 * tick:.0f}%" for tick in ticks])
    axes.set_yticks(ticks, [f"{100 * tick:.0f}%" for tick in ticks])
    axes.set_xlabel("confidence", color=INK, fontsize=8.5)
    axes.set_ylabel("accuracy", color=INK, fontsize=8.5)
    axes.grid(color=INK, alpha=0.12, linewidth=0.8)
    return figure
