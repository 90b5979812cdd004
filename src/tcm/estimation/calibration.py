"""Calibration: a temperature for the probabilities, and how far confidence is from accuracy where labels exist."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcm.estimation.estimators import Array, assigned_classes, some_rows

TEMPERATURES = (0.005, 20.0)  # the range that is searched
BINS = 15  # of Guo et al. (2017)


def with_temperature(probabilities: Array, temperature: float) -> Array:
    """softmax(log p / temperature) [n, classes]: what dividing the logits by it gives."""
    logits = np.log(np.maximum(np.asarray(probabilities, dtype=np.float64), np.finfo(np.float32).tiny)) / temperature
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def fitted_temperature(probabilities: Array, labels: NDArray[np.integer]) -> float:
    """The temperature with the least cross-entropy on labelled images, in TEMPERATURES (Guo et al., 2017).

    Fit it on held-out source images: on training images every model is too confident.
    """
    from scipy.optimize import minimize_scalar

    rows = np.arange(len(labels))

    def cross_entropy(log_temperature: float) -> float:
        found = with_temperature(probabilities, np.exp(log_temperature))[rows, labels]
        return float(-np.log(np.maximum(found, np.finfo(np.float32).tiny)).mean())

    found: Any = minimize_scalar(cross_entropy, bounds=np.log(TEMPERATURES), method="bounded")
    return float(np.exp(found.x))


def pseudo_labelled_temperature(target: Array, shares: Array) -> float:
    """The temperature fitted on target images with guessed labels: their assignment to the source's class `shares`.

    The model's own predictions cannot serve as labels: by these it is always right, and the temperature would fall to
    the lowest. The assignment (`assigned_classes`) contradicts the predictions where a class is predicted too often.
    """
    rows = some_rows(target)
    return fitted_temperature(rows, assigned_classes(rows, shares))


@dataclass(frozen=True)
class Reliability:
    """A reliability curve: images in bins of equal width by confidence. Empty bins are left out."""

    confidence: NDArray[np.float64]  # [bins], the mean confidence
    accuracy: NDArray[np.float64]  # [bins], the share of right predictions
    images: NDArray[np.int64]  # [bins]
    expected_calibration_error: float
    """The mean distance of confidence and accuracy, weighted by images (Naeini et al., 2015)."""


def reliability(probabilities: Array, labels: NDArray[np.integer], bins: int = BINS) -> Reliability | None:
    """The reliability curve on the labelled images (label not -1); None if there are none."""
    known = np.asarray(labels) >= 0
    if not known.any():
        return None
    confidence = probabilities[known].max(axis=1).astype(np.float64)
    right = probabilities[known].argmax(axis=1) == np.asarray(labels)[known]
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    images = np.bincount(place, minlength=bins)
    used = images > 0
    mean_confidence = np.bincount(place, confidence, bins)[used] / images[used]
    mean_right = np.bincount(place, right, bins)[used] / images[used]
    error = float(np.average(np.abs(mean_confidence - mean_right), weights=images[used]))
    return Reliability(mean_confidence, mean_right, images[used], error)
