import numpy as np
import pytest

from tcm.report.scores import (
    class_bars,
    confidence_bars,
    confused_pairs,
    prediction_bars,
    wilson_interval,
)

MATRIX = np.array([[3, 1, 0], [0, 0, 0], [2, 0, 2]])
CLASSES = ["cat", "dog", "owl"]


def test_confused_pairs_come_most_frequent_first():
    pairs = [(pair.true, pair.predicted, pair.count, pair.share) for pair in confused_pairs(MATRIX, CLASSES)]
    assert pairs == [("owl", "cat", 2, 0.5), ("cat", "dog", 1, 0.25)]
    assert len(confused_pairs(MATRIX, CLASSES, most=1)) == 1


def test_class_bars_come_worst_first_and_only_for_classes_with_images():
    bars = [(bar.label, bar.value, bar.note) for bar in class_bars(MATRIX, CLASSES)]
    assert bars == [("owl", "50.0%", "2 of 4"), ("cat", "75.0%", "3 of 4")]


def test_prediction_bars_count_every_class():
    bars = [(bar.label, bar.share, bar.value, bar.note) for bar in prediction_bars(np.array([2, 2, 0]), CLASSES)]
    assert bars == [("owl", 1.0, "2", "66.7%"), ("cat", 0.5, "1", "33.3%"), ("dog", 0.0, "0", "0.0%")]


def test_confidence_bars_hold_every_image_once():
    bars = confidence_bars(np.array([1.0, 0.95, 0.9, 0.15]))
    assert bars[0].label == "90–100%"
    assert [int(bar.value) for bar in bars] == [3, 0, 0, 0, 0, 0, 0, 0, 1, 0]


def test_wilson_interval():
    assert wilson_interval(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson_interval(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
