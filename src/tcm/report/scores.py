"""Predictions to the numbers that the page shows: confusions, bars, intervals. Pure functions of arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest


@dataclass(frozen=True)
class Bar:
    """One row of a bar list: its length is `share` in [0, 1]; `value` and `note` are beside it."""

    label: str
    share: float
    value: str
    note: str = ""


@dataclass(frozen=True)
class Pair:
    """A confusion: `count` images of class `true` were predicted as `predicted`, `share` of that class."""

    true: str
    predicted: str
    count: int
    share: float


def confused_pairs(matrix: np.ndarray, classes: Sequence[str], most: int = 10) -> list[Pair]:
    """The most frequent confusions, most images first."""
    wrong = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    cells = [divmod(int(cell), len(classes)) for cell in order if wrong.flat[cell]]
    totals = matrix.sum(axis=1)
    return [
        Pair(classes[true], classes[predicted], int(wrong[true, predicted]), wrong[true, predicted] / totals[true])
        for true, predicted in cells
    ]


def confidence_bars(confidence: np.ndarray) -> list[Bar]:
    """How many images have a confidence in each tenth, highest first; the longest bar is full."""
    counts, _ = np.histogram(confidence, bins=np.linspace(0, 1, 11))
    longest, total = max(1, counts.max()), max(1, len(confidence))
    return [
        Bar(f"{10 * i}–{10 * i + 10}%", counts[i] / longest, f"{counts[i]:,}", f"{counts[i] / total:.1%}")
        for i in reversed(range(10))
    ]


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """The 95% interval of the share of `right` among `count` images (Wilson, 1927)."""
    low, high = binomtest(right, count).proportion_ci(method="wilson")
    return float(low), float(high)
