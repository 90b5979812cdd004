import numpy as np
import pytest

from tcm.report.scores import (
    confidence_bars,
    confused_pairs,
    wilson_interval,
)

MATRIX = np.array([[3, 1, 0], [0, 0, 0], [2, 0, 2]])
CLASSES = ["cat", "dog", "owl"]


def test_confused_pairs_come_most_frequent_first():
    pairs = [(pair.true, pair.predicted, pair.count, pair.share) for pair in confused_pairs(MATRIX, CLASSES)]
    assert pairs == [("owl", "cat", 2, 0.5), ("cat", "dog", 1, 0.25)]
    assert len(confused_pairs(MATRIX, CLASSES, most=1)) == 1


def test_confidence_bars_hold_every_image_once():
    bars = confidence_bars(np.array([1.0, 0.95, 0.9, 0.15]))
    assert bars[0].label == "90–100%"
    assert [int(bar.value) for bar in bars] == [3, 0, 0, 0, 0, 0, 0, 0, 1, 0]


def test_wilson_interval():
    assert wilson_interval(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson_interval(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
