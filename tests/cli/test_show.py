"""What several commands print."""

import io
from typing import Any

import pytest
from rich.console import Console

from tcm.cli.show import scores_table
from tcm.estimation.estimate import Estimate

ESTIMATE = Estimate(0.72, 0.63, 0.81, "atc", error=0.06, cases=40, level=0.9, held_out=10, estimators={})


def printed(summaries: list[dict[str, Any]], *estimates: Any) -> str:
    screen = io.StringIO()
    Console(file=screen, width=80).print(scores_table(summaries, estimates))
    return screen.getvalue()


def summary(accuracy: float | None) -> dict[str, Any]:
    return {
        "method": "tcm",
        "source": {"name": "photos", "accuracy": 0.9},
        "target": {"name": "cliparts", "accuracy": accuracy, "mean_class_accuracy": accuracy},
        "selection": "last",
        "seconds": 3.0,
    }


@pytest.mark.parametrize("accuracy", [None, 0.7])
def test_a_target_without_labels_has_estimates_in_place_of_accuracies(accuracy: float | None):
    text = printed([summary(accuracy), summary(accuracy)], ESTIMATE, None)
    assert ("72 % ± 9" in text) == (accuracy is None)
    assert ("mean per class" in text) == (accuracy is not None)
    assert "no labels" not in text
    assert "no labels" in printed([summary(None)])


@pytest.mark.parametrize("accuracy", [None, 0.7])
def test_source_accuracy_is_that_of_held_out_images_if_all_runs_have_some(accuracy: float | None):
    held, trained = summary(accuracy), summary(accuracy)
    held["source"]["held_out_accuracy"] = 0.6
    trained["source"]["held_out_accuracy"] = None
    both = " ".join(printed([held, held], ESTIMATE, ESTIMATE).split())
    assert "60.0 %" in both
    assert "90.0 %" not in both
    assert "held out" in both
    mixed = printed([held, trained], ESTIMATE, ESTIMATE)
    assert "90.0 %" in mixed
    assert "held out" not in mixed
