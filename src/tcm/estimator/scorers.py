"""Scores of an estimator without target labels, for GridSearchCV and the like."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from torch import Tensor

from tcm.classifier.selection import information, negative_entropy, neighbourhood_density
from tcm.errors import InputError, printable
from tcm.estimator.samples import target_samples

TARGET_SCORES: dict[str, Callable[[Tensor], float]] = {
    "information": information,
    "entropy": negative_entropy,
    "snd": neighbourhood_density,
}


class TargetScorer(BaseEstimator):
    """A scorer for scikit-learn that needs no target labels: `GridSearchCV(estimator, grid, scoring=TargetScorer())`.

    It asks the estimator for the class probabilities of the target samples, which have the label -1 or a negative
    `sample_domain`. Without such samples it uses all of them. A larger score is better. docs/results/selection.md
    shows how well each score agrees with target accuracy.

    Args:
        rule: "information" (information maximisation), "entropy" (negative mean entropy) or "snd" (soft neighbourhood
            density).
    """

    __metadata_request__score: ClassVar = {"sample_domain": True}

    def __init__(self, rule: str = "information"):
        self.rule = rule

    def __call__(self, estimator: Any, X: Any, y: Any = None, sample_domain: Any = None) -> float:  # noqa: N803
        """The score of a fitted estimator."""
        if self.rule not in TARGET_SCORES:
            raise InputError("rule", f'is "{printable(self.rule)}"; give one of {", ".join(TARGET_SCORES)}')
        samples = X
        if y is not None or sample_domain is not None:
            rows = np.flatnonzero(target_samples(y, sample_domain))
            samples = _safe_indexing(X, rows) if len(rows) else X
        return TARGET_SCORES[self.rule](torch.from_numpy(np.asarray(estimator.predict_proba(samples), np.float64)))
