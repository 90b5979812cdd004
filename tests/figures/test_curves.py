import math

import numpy as np
import pytest

from tcm.analysis.curves import curve
from tcm.figures.curves import SMOOTH_ABOVE, learning_curves, running_mean
from tcm.figures.svg import PALETTE, inline_svg

TRAINING = [{"step": step, "lr": 0.1, "loss/domain": 1 / step, "images_per_second": 9.0} for step in (10, 20, 30)]
EVALUATION = [{"step": step, "source/accuracy": 0.9, "target/accuracy": step / 100} for step in (10, 20)]


def test_one_run_has_its_accuracies_together():
    figures = learning_curves({"dann, seed 0": [*TRAINING, *EVALUATION]})
    assert list(figures) == ["Accuracy", "Loss: domain"]
    lines = figures["Accuracy"].axes[0].get_lines()
    assert [np.asarray(line.get_ydata()).tolist() for line in lines] == [[0.1, 0.2], [0.9, 0.9]]


def test_selection_scores_are_no_learning_curves():
    rows = [{"step": 1, "source/accuracy": 0.5, "select/snd": 2.0}]
    assert list(learning_curves({"a": rows})) == ["Source accuracy"]


def test_without_target_labels_the_source_accuracy_stands_alone():
    rows = [{"step": 1, "source/accuracy": 0.5}]
    assert list(learning_curves({"a": rows})) == ["Source accuracy"]


def test_several_runs_have_a_figure_per_quantity_and_a_line_each():
    figures = learning_curves({"a": [*TRAINING, *EVALUATION], "b": EVALUATION})
    assert list(figures) == ["Target accuracy", "Source accuracy", "Loss: domain"]
    first, second = figures["Target accuracy"].axes[0].get_lines()
    assert (first.get_color(), second.get_color()) == PALETTE[:2]
    assert first.get_linestyle() != second.get_linestyle()
    assert first.get_marker() != second.get_marker()
    assert len(figures["Loss: domain"].axes[0].get_lines()) == 1


def test_labels_stand_in_the_legend_as_they_are():
    svg = inline_svg(learning_curves({"_a $x$": EVALUATION, "<b>": EVALUATION})["Target accuracy"], "name", "d")
    assert "_a $x$" in svg
    assert "&lt;b&gt;" in svg


def test_nothing_logged_gives_no_figure():
    assert learning_curves({"a": []}) == {}


def test_curve_keeps_the_last_row_of_a_step_and_finite_values_only():
    rows = [
        {"step": 20, "loss/domain": 2.0},
        {"step": 10, "loss/domain": 1.0},
        {"step": 20, "loss/domain": 3.0},
        {"step": 30, "loss/domain": math.nan},
        {"step": 40, "loss/domain": None},
    ]
    steps, values, _ = curve(rows, "loss/domain")
    assert steps.tolist() == [10, 20]
    assert values.tolist() == [1.0, 3.0]


def test_long_lines_are_smoothed_over_faint_raw_values():
    rows = [{"step": step, "loss/domain": step % 2} for step in range(SMOOTH_ABOVE + 100)]
    raw, smooth = learning_curves({"a": rows})["Loss: domain"].axes[0].get_lines()
    assert raw.get_alpha() == 0.25
    assert np.std(np.asarray(smooth.get_ydata())) < np.std(np.asarray(raw.get_ydata()))


def test_running_mean():
    assert running_mean(np.array([0.0, 3.0, 6.0]), 3) == pytest.approx([1.5, 3.0, 4.5])
