import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from tcm.figures.curves import learning_curves
from tcm.figures.distances import distances_figure

UNTOUCHED = 200.0


def watched(step: int, *living: int, together: float | None = None, untouched: float = UNTOUCHED) -> dict[str, float]:
    """A row of a run that watched: a mechanism's distance to the target is 100 times its place, to the source more."""
    row: dict[str, float] = {"step": step, "frechet/untouched": untouched}
    for to, more in (("target", 0.0), ("source", 5.0)):
        row |= {f"frechet/{to}/{number}": 100.0 * (number + 1) + more for number in living}
        if together is not None:
            row[f"frechet/{to}/together"] = together + more
    return row


def panels(history: list[dict[str, float]], numbers: list[int] | None = None) -> list[Axes]:
    figure = distances_figure(history, numbers)
    assert figure
    figure.draw_without_rendering()
    return figure.axes


def lines(axes: Axes) -> dict[str, Line2D]:
    """The lines by the names at their ends, which have their colours."""
    left, found = [text for text in axes.texts if isinstance(text, Annotation)], {}
    for line in axes.get_lines():
        name = next(text for text in left if text.get_color() == line.get_color())
        left.remove(name)
        found[name.get_text()] = line
    return found


def heights(line: Line2D) -> list[float]:
    return np.asarray(line.get_ydata()).tolist()


def test_a_panel_a_direction_with_all_together_each_mechanism_and_the_untouched():
    history = [watched(10, 0, 1, together=90.0), {"step": 15, "loss/critics": 0.4}, watched(20, 0, 1, together=30.0)]
    to_target, to_source = panels(history, [0, 1])
    assert [axes.get_title(loc="left") for axes in (to_target, to_source)] == ["source to target", "target to source"]
    for axes, more in ((to_target, 0.0), (to_source, 5.0)):
        drawn = lines(axes)
        assert {name: heights(line) for name, line in drawn.items()} == {
            "untouched": [UNTOUCHED] * 3,
            "1": [100.0 + more] * 2,
            "2": [200.0 + more] * 2,
            "all": [90.0 + more, 30.0 + more],
        }
        assert drawn["untouched"].get_linestyle() == "--"
        assert drawn["all"].get_linewidth() > 2 * max(drawn[name].get_linewidth() for name in ("1", "2"))
        # Told apart without colour too.
        assert (
            len({(line.get_linestyle(), str(line.get_marker()), line.get_linewidth()) for line in drawn.values()}) == 4
        )
    assert to_target.get_ylim() == to_source.get_ylim()


def test_one_evaluation_has_its_untouched_line_and_a_point_each():
    drawn = lines(panels([watched(10, 0, together=90.0)], [0])[0])
    assert np.asarray(drawn["untouched"].get_xdata()).tolist() == [0, 10]
    assert {str(drawn[name].get_marker()) for name in ("1", "all")} == {"o"}


def test_mechanisms_that_are_judged_alone_have_no_line_together():
    assert list(lines(panels([watched(10, 0, 1), watched(20, 0, 1)], [0, 1])[0])) == ["untouched", "1", "2"]


def test_places_are_those_of_the_saved_bank_and_the_others_are_dropped():
    history = [watched(10, 0, 1, 2), watched(20, 0, 2), {"step": 20, "wins/source/0": 0.5, "wins/source/2": 0.5}]
    for numbers in ([0, 2], None):
        for axes in panels(history, numbers):
            drawn = lines(axes)
            assert list(drawn) == ["untouched", "1", "dropped", "2"]
            assert heights(drawn["dropped"])[0] // 100 == 2


def test_the_untouched_distance_is_another_where_a_resumed_run_measures_other_images():
    drawn = lines(panels([watched(10, 0), watched(20, 0, untouched=180.0)], [0])[0])
    assert heights(drawn["untouched"]) == [UNTOUCHED, UNTOUCHED, 180.0]


@pytest.mark.parametrize("history", [[], [{"step": 1, "loss/critics": 1.0, "wins/source/0": 1.0}]])
def test_a_run_that_did_not_watch_has_no_figure(history: list[dict[str, float]]):
    assert distances_figure(history) is None


def test_distances_are_no_learning_curves():
    row = {**watched(10, 0, 1, together=90.0), "loss/critics": 0.4}
    assert list(learning_curves({"a": [row]})) == ["Loss: critics"]
