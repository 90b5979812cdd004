"""Estimators of target accuracy, each a function of predictions and a share in [0, 1]. None sees a target label.

`probabilities` are class probabilities [n, classes]. Those of source images must be of images that training did not
see: on training images a model is right nearly always, and every estimate that starts from there is too high.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Score = Callable[[Array], Array]

ASSIGNED = 1000  # images that `transport_accuracy` assigns: more take long and change little


def max_confidence(probabilities: Array) -> Array:
    """The probability of the predicted class, [n]."""
    return probabilities.max(axis=1)


def negative_entropy(probabilities: Array) -> Array:
    """sum_c p_c log p_c, [n]: 0 for a certain prediction, -log classes for none."""
    tiny = np.finfo(np.float32).tiny
    return (probabilities * np.log(np.maximum(probabilities, tiny))).sum(axis=1)


def accuracy(probabilities: Array, labels: NDArray[np.integer]) -> float:
    """The share of images whose most probable class is their label."""
    return float((probabilities.argmax(axis=1) == labels).mean())


def mean_confidence(target: Array) -> float:
    """The mean probability of the predicted class. It is the accuracy if the model is calibrated on the target."""
    return float(max_confidence(target).mean())


def thresholded_confidence(
    source: Array, labels: NDArray[np.integer], target: Array, score: Score = max_confidence
) -> float:
    """ATC (Garg et al., 2022, Eqs. (1) and (2)): the share of target images with a score of at least t.

    The threshold t is the one below which the share of source images equals their error: it lies at the score of rank
    "number of errors". Without a right source image nothing is above it.
    """
    scores = np.sort(score(source))
    errors = int((source.argmax(axis=1) != labels).sum())
    threshold = scores[errors] if errors < len(scores) else np.inf
    return float((score(target) >= threshold).mean())


def difference_of_confidences(source: Array, labels: NDArray[np.integer], target: Array) -> float:
    """DoC (Guillory et al., 2021): source accuracy minus the fall of the mean confidence from source to target."""
    fall = max_confidence(source).mean() - max_confidence(target).mean()
    return float(np.clip(accuracy(source, labels) - fall, 0, 1))


def transport_accuracy(target: Array, shares: Array, most: int = ASSIGNED) -> float:
    """COT (Lu et al., 2023): 1 minus the Wasserstein distance of the target's probabilities to the source's labels.

    The labels are one-hot vectors with the class `shares` [classes] of the source. The cost of moving p to class y in
    the maximum norm is 1 - p_y, so this is the highest mean p_y of an assignment of images to classes with these
    shares. It is exact on at most `most` evenly spaced images.
    """
    rows = some_rows(target, most)
    return float(rows[np.arange(len(rows)), assigned_classes(rows, shares)].mean())


def assigned_classes(target: Array, shares: Array) -> NDArray[np.int64]:
    """The class of each image [n] in the assignment with the highest mean probability and these class `shares`."""
    from scipy.optimize import linear_sum_assignment

    classes = np.repeat(np.arange(len(shares)), apportioned(shares, len(target)))
    _, columns = linear_sum_assignment(target[:, classes], maximize=True)
    return classes[columns]


def some_rows(rows: Array, most: int = ASSIGNED) -> Array:
    """At most `most` of the rows, at even distances."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]


def apportioned(shares: Array, total: int) -> NDArray[np.int64]:
    """Whole numbers [classes] with these shares that add up to `total`: the largest remainders are rounded up."""
    exact = np.asarray(shares, dtype=float) / np.sum(shares) * total
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def agreement(first: Array, second: Array) -> float:
    """GDE (Jiang et al., 2022): the share of target images on which two models agree.

    For models that differ in the seed alone this is their mean accuracy, if their average is calibrated by class.
    """
    return float((first.argmax(axis=1) == second.argmax(axis=1)).mean())


def corrected_agreement(target: float, held_out: float, held_out_accuracy: float) -> float:
    """Neighbour agreement on the target, moved by how far it is from accuracy on held-out source images."""
    return float(np.clip(held_out_accuracy + target - held_out, 0, 1))
