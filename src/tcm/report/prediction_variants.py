"""The tables of a report about prediction variants and about the causal head."""

from dataclasses import dataclass

from tcm.analysis.run_record import Evaluation, Record
from tcm.methods.tcm.head_diagnostics import HeadMetrics, head_metrics, head_remarks

REPORTED = "As reported"
_EXPLAINED = {
    "fast": "Without the counterfactuals of the image, at the cost of the backbone alone (fast in tcm predict).",
    "average": "The mean prediction on the image and its counterfactuals, TCM Eq. (1) evaluated for every image.",
    "mechanism 1 alone": "From the counterfactual of this mechanism only; likewise for the other mechanisms.",
    "linear classifier": "The classifier that was trained, in place of the centroids of the target's classes.",
    "f_y alone": "The head without the proxy function.",
    "plain classifier": "The linear classifier that learned the labels of transported source images.",
    "gaussian weights": "Counterfactuals are weighted by the density of TCM Eq. (5), as in the paper.",
    "uniform weights": "All counterfactuals of an image have the same weight.",
}


@dataclass(frozen=True)
class VariantRow:
    """One row: the accuracy of one way to predict."""

    name: str
    explanation: str  # empty if there is none
    accuracy: float
    points: float | None  # difference to the reported accuracy; None for the reported prediction itself


@dataclass(frozen=True)
class HeadView:
    """The newest numbers of the causal head, and its problems."""

    found: HeadMetrics
    remarks: list[str]
    singular_values: list[float]  # of W3; empty before the run is finished


def variant_rows(evaluation: Evaluation) -> list[VariantRow]:
    """The reported prediction, then its variants; empty if there are no variants or no target labels."""
    accuracy = evaluation.accuracy
    variants = {name: scores["accuracy"] for name, scores in evaluation.variants.items() if "accuracy" in scores}
    if accuracy is None or not variants:
        return []
    reported = VariantRow(REPORTED, "The prediction that all other numbers here are about.", accuracy, None)
    rows = [VariantRow(name, _EXPLAINED.get(name, ""), own, 100 * (own - accuracy)) for name, own in variants.items()]
    return [reported, *rows]


def head_view(record: Record) -> HeadView | None:
    """The view of the causal head; None for a run without one, or before its first evaluation."""
    found = head_metrics(record.history)
    if found is None:
        return None
    known = record.evaluation.summary.get("singular_values", {}) if record.evaluation else {}
    return HeadView(found, head_remarks(found), known.get("W3", []))
