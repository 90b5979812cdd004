"""The classes of a run as tables: shares, accuracies, and a confusion matrix that fits a phone. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcm.analysis.run_record import Evaluation

FEW = 12  # classes of which the whole matrix fits a phone
OTHERS = "other"  # the column of all classes that have none of their own


@dataclass(frozen=True)
class ClassRow:
    """One class; a number that is not known is None."""

    name: str
    source: float | None  # its share of the source images
    predicted: float  # its share of the predictions for the target
    true: float | None  # its share of the labelled target images
    accuracy: float | None  # share of its labelled target images that are predicted right
    images: int  # its labelled target images
    confidence: float | None  # mean confidence of the predictions of this class


@dataclass(frozen=True)
class ConfusionCell:
    """Images of a true class with one prediction."""

    count: int
    share: float  # of the true class
    right: bool


@dataclass(frozen=True)
class ConfusionTable:
    """A confusion matrix, or the part of it with the most mistakes: one row per true class."""

    columns: list[str]
    rows: list[tuple[str, list[ConfusionCell]]]
    whole: bool


def class_rows(evaluation: Evaluation) -> list[ClassRow]:
    """One row per class. With target labels the worst first, else those whose share changed most."""
    arrays, count = evaluation.arrays, len(evaluation.classes)
    labels, guess = arrays["labels"], evaluation.predictions
    known = labels >= 0
    source = _shares(arrays["source_classes"], count) if "source_classes" in arrays else [None] * count
    true = _shares(labels[known], count) if known.any() else [None] * count
    rows = []
    for index, name in enumerate(evaluation.classes):
        own, chosen = labels == index, guess == index
        rows.append(
            ClassRow(
                name,
                source[index],
                float(chosen.mean()) if len(chosen) else 0.0,
                true[index],
                float((guess[own] == index).mean()) if own.any() else None,
                int(own.sum()),
                float(evaluation.confidence[chosen].mean()) if chosen.any() else None,
            )
        )
    if known.any():
        return sorted(rows, key=lambda row: 2.0 if row.accuracy is None else row.accuracy)
    return sorted(rows, key=lambda row: -abs(row.predicted - (row.source or 0.0)))


def _shares(labels: NDArray[np.integer], classes: int) -> list[float]:
    return (np.bincount(labels, minlength=classes) / max(len(labels), 1)).tolist()


def confusion_table(matrix: NDArray[np.int64], classes: Sequence[str], few: int = FEW) -> ConfusionTable:
    """The counts in `matrix` [true, predicted]; of many classes, only those with the most mistakes.

    All other predictions of these classes are in the column OTHERS, so every row adds up to its class.
    """
    totals = np.maximum(matrix.sum(axis=1), 1)
    whole = len(classes) <= few
    wrong = matrix.sum(axis=1) + matrix.sum(axis=0) - 2 * np.diag(matrix)
    chosen = range(len(classes)) if whole else sorted(np.argsort(-wrong, kind="stable")[: few - 2].tolist())
    rows = []
    for true in chosen:
        counts = [int(matrix[true, predicted]) for predicted in chosen]
        counts += [] if whole else [int(matrix[true].sum()) - sum(counts)]
        places = [*(place == true for place in chosen), *([] if whole else [False])]
        cells = [ConfusionCell(n, n / totals[true], right) for n, right in zip(counts, places, strict=True)]
        rows.append((classes[true], cells))
    return ConfusionTable([*(classes[place] for place in chosen), *([] if whole else [OTHERS])], rows, whole)
