"""Many lines in small panels: each has its own, with the others faint behind it, so that colours are not needed."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator

from tcm.analysis.curves import Curve, Series
from tcm.figures.curves import draw_line, mark_percent
from tcm.figures.svg import INK, shortened, style_axes, visible

_MOST_COLUMNS = 4
_WIDTH, _HEIGHT = 2.3, 1.75  # inches of a panel
_LONG = 34  # letters of a title that fits above a panel
_ROUND = [1, 2, 2.5, 5, 10]  # distances of ticks


def panels_figure(series: Series, *, along: str, up: str, ends: bool = False, ticks: Sequence[int] = ()) -> Figure:
    """One panel per line, in percent on one scale; with `ends` the title has the last value.

    `along` and `up` are the labels of the axes; `ticks` are the only marks on the horizontal axis, if given.
    """
    rows = math.ceil(len(series) / _MOST_COLUMNS)
    columns = math.ceil(len(series) / rows)
    # A single panel is as wide as the other figures.
    size = (_WIDTH * columns, _HEIGHT * rows + 0.3) if len(series) > 1 else (2 * _WIDTH, 2.7)
    figure = Figure(figsize=size, layout="constrained")
    layout = figure.get_layout_engine()
    assert layout is not None, "it was asked for"
    layout.set(h_pad=0.08)  # pyright: ignore[reportCallIssue]
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten().tolist()
    for axes, (label, line) in zip(panels, series.items(), strict=False):
        end = f"\n{_end(line)}" if ends and len(line.at) else ""
        axes.set_title(shortened(visible(label), _LONG) + end, color=INK, fontsize=8.5, loc="left", parse_math=False)
        _draw(axes, line, [other for other in series.values() if other is not line])
        if ticks:
            axes.xaxis.set_major_locator(FixedLocator(ticks))
        else:
            axes.set_xlim(left=0)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=_ROUND))
    for axes in panels[len(series) :]:
        axes.set_axis_off()
        above = panels[panels.index(axes) - columns]
        above.tick_params(labelbottom=True)  # it is the last of its column
    mark_percent(panels[0])
    figure.supxlabel(along, color=INK, fontsize=8.5)
    figure.supylabel(up, color=INK, fontsize=8.5)
    return figure


def _end(line: Curve) -> str:
    spread = f" ± {100 * line.deviation[-1]:.1f}" if line.deviation is not None else ""
    return f"{line.values[-1]:.1%}{spread}"


def _draw(axes: Axes, line: Curve, others: Sequence[Curve]) -> None:
    style_axes(axes)
    for other in others:
        axes.plot(other.at, other.values, color=INK, alpha=0.2, linewidth=0.8)
    draw_line(axes, 0, *line)
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_ROUND))
