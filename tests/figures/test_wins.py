from itertools import pairwise

import numpy as np
import pytest
from matplotlib.text import Annotation

from tcm.figures.curves import learning_curves
from tcm.figures.svg import inline_svg
from tcm.figures.wins import class_wins_figure, wins_figure

ROWS = [
    {"step": step, "loss/critics": 0.4, **{f"wins/{side}/{i}": share for i, share in enumerate((0.7, 0.3, 0.0))}}
    for step in (10, 20, 30)
    for side in ("source", "target")
]


def test_a_panel_a_domain_and_a_labelled_line_a_mechanism():
    figure = wins_figure(ROWS)
    assert figure
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["source images", "target images"]
    for axes in figure.axes:
        lines = axes.get_lines()[1:]  # the first is that of equal shares
        assert [np.asarray(line.get_ydata()).tolist() for line in lines] == [[0.7] * 3, [0.3] * 3, [0.0] * 3]
        assert len({line.get_linestyle() for line in lines}) == 3
        labels = [text for text in axes.texts if isinstance(text, Annotation)]
        assert [label.get_text() for label in labels] == ["1", "2", "3"]
        assert [label.get_color() for label in labels] == [line.get_color() for line in lines]


def dropping(*left_after: tuple[int, list[int]]) -> list[dict[str, float]]:
    """Rows of a run that goes on with these mechanisms after these steps."""
    rows, living = [], [0, 1, 2, 3]
    for step in (10, 20, 30):
        shares = {f"wins/{side}/{i}": 1 / len(living) for side in ("source", "target") for i in living}
        counts = {f"class_wins/{i}/{name}": 1 / len(living) for i in living for name in ("cup", "hat")}
        rows += [{"step": step, **shares}, {"step": step, **counts}]
        living = dict(left_after).get(step, living)
    return rows


def labels(history: list[dict[str, float]], numbers: list[int] | None) -> list[list[str]]:
    figure = wins_figure(history, numbers)
    assert figure
    return [[text.get_text() for text in axes.texts if isinstance(text, Annotation)] for axes in figure.axes]


def test_those_that_are_left_are_called_by_their_place_and_the_others_dropped():
    assert labels(dropping((10, [0, 2, 3])), [0, 2, 3]) == [["dropped", "1", "2", "3"]] * 2
    # Dropped at the last count: the last row knows it still, the model no more.
    assert labels(dropping((10, [0, 2, 3]), (30, [2, 3])), [2, 3]) == [["dropped", "dropped", "1", "2"]] * 2
    # A run that goes on has no model yet.
    assert labels(dropping((10, [0, 2, 3])), None) == [["dropped", "1", "2", "3"]] * 2


def test_a_line_that_ends_early_says_so_where_it_ends():
    figure = wins_figure(dropping((10, [0, 2, 3])), [0, 2, 3])
    assert figure
    gone, *left = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
    assert gone.xy[0] == 10
    assert all(text.xy[0] == 1.015 for text in left)  # of the width of the axes
    dotted = np.asarray(figure.axes[0].get_lines()[0].get_ydata())
    assert dotted == pytest.approx(1 / 3)  # equal shares of those that are left


def test_who_won_which_class_at_the_last_count():
    counts = [
        {"step": 10, "class_wins/0/cup": 1.0, "class_wins/0/a/b": 0.0, "class_wins/1/cup": 0.0, "class_wins/1/a/b": 1},
        {
            "step": 20,
            "class_wins/0/cup": 0.75,
            "class_wins/0/a/b": 0.0,
            "class_wins/1/cup": 0.25,
            "class_wins/1/a/b": 0,
        },
    ]
    figure = class_wins_figure([*ROWS, *counts])
    assert figure
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cup", "a/b"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2"]
    assert [text.get_text() for text in axes.texts] == ["75", "25"]
    pixels = np.asarray(axes.get_images()[0].get_array())
    assert pixels[..., 3] == pytest.approx(np.array([[0.75, 0], [0.25, 0]]), abs=0.01)


def test_a_row_of_wins_by_class_has_the_name_of_its_line():
    figure = class_wins_figure(dropping((10, [0, 2, 3]), (30, [2, 3])), [2, 3])
    assert figure
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["1", "2", "dropped"]


@pytest.mark.parametrize(("classes", "named"), [(10, True), (65, True), (345, False)])
def test_wins_by_class_of_many_classes(classes: int, named: bool):
    history = [{"step": 1, **{f"class_wins/{i}/class {c}": 0.25 for i in range(4) for c in range(classes)}}]
    figure = class_wins_figure(history, [0, 1, 2, 3])
    assert figure
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    assert len(labels) == (classes if named else 0)
    assert all(label.get_rotation() == 90 for label in labels)
    boxes = [label.get_window_extent() for label in labels]
    assert all(one.x1 <= other.x0 + 0.5 for one, other in pairwise(boxes))


@pytest.mark.filterwarnings("error")
def test_any_class_name_can_be_drawn():
    names = ("<b>&", "$x$", "new\nline", "日" * 50, "kl\udcfc", "")
    figure = class_wins_figure([{"step": 1, **{f"class_wins/0/{name}": 1.0 for name in names}}], [0])
    assert figure
    svg = inline_svg(figure, "name", "d")
    assert "&lt;b&gt;&amp;" in svg
    assert "$x$" in svg
    assert "new\\nline" in svg
    svg.encode()


def test_without_wins_there_is_no_figure():
    assert wins_figure([]) is None
    assert class_wins_figure([]) is None
    assert class_wins_figure(ROWS) is None
    assert wins_figure([{"step": 1, "loss/domain": 1.0}]) is None


def test_wins_are_no_learning_curves():
    usage = {"step": 30, "usage/0": 0.5, "class_wins/0/cup": 0.5, "unused": 1.0, "k": 3}
    assert list(learning_curves({"a": [*ROWS, usage]})) == ["Loss: critics"]
