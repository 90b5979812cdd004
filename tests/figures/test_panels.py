"""Many lines, told apart by their place."""

import numpy as np
import pytest

from tcm.analysis.curves import Curve
from tcm.figures.panels import panels_figure
from tcm.figures.svg import INK, PALETTE, inline_svg

STEPS = np.array([100, 200])


def lines(count: int) -> dict[str, Curve]:
    return {f"method {i}": Curve(STEPS, np.array([0.1, i / 100])) for i in range(count)}


def test_a_panel_a_line_with_the_others_faint_behind_it():
    figure = panels_figure(lines(12), along="step", up="target accuracy", ends=True)
    assert len(figure.axes) == 12
    for number, axes in enumerate(figure.axes):
        *others, own = axes.get_lines()
        assert axes.get_title(loc="left") == f"method {number}\n{number}.0%"
        assert np.asarray(own.get_ydata()).tolist() == [0.1, number / 100]
        assert own.get_color() == PALETTE[0]
        assert len(others) == 11
        assert {(line.get_color(), line.get_alpha()) for line in others} == {(INK, 0.2)}
    assert len({axes.get_ylim() for axes in figure.axes}) == 1


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (4, (1, 4)), (5, (2, 3)), (12, (3, 4))])
def test_panels_are_spread_evenly(count: int, shape: tuple[int, int]):
    figure = panels_figure(lines(count), along="k", up="", ticks=[100, 200])
    grid = figure.axes[0].get_gridspec()
    assert grid
    assert (grid.nrows, grid.ncols) == shape
    assert [axes.axison for axes in figure.axes] == [True] * count + [False] * (shape[0] * shape[1] - count)
    assert figure.axes[0].get_xticks().tolist() == [100, 200]


def test_the_spread_over_seeds_and_names_as_they_are():
    line = Curve(STEPS, np.array([0.5, 0.25]), np.array([0.1, 0.015]))
    svg = inline_svg(panels_figure({"<b> $x$\n": line}, along="step", up="", ends=True), "name", "d")
    assert "&lt;b&gt; $x$\\n" in svg
    assert "25.0% ± 1.5" in svg
