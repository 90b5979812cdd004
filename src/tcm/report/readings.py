"""What the page says of a run's other readings, and of its causal head."""

from dataclasses import dataclass

from tcm.analysis.run_record import Evaluation, Record
from tcm.methods.tcm.proxy import HeadMetrics, head_metrics, head_remarks

REPORTED = "As reported"
_EXPLAINED = {
    "fast": "Without the image's own counterfactuals, at the cost of the bare backbone: tcm predict --fast.",
    "mechanism 1 alone": "Of the image's views only the counterfactual that this mechanism makes; so with the others.",
    "f_y alone": "The head without the proxy function.",
    "gaussian weights": "Counterfactuals weigh by the density of Eq. (5) that the paper chooses.",
    "uniform weights": "All counterfactuals of an image weigh alike.",
}


@dataclass(frozen=True)
class Reading:
    """One row: what the same model is right on when it is read in this way."""

    name: str
    explanation: str  # empty where none is known
    accuracy: float
    points: float | None  # more than the reported accuracy; None for the reported one itself


@dataclass(frozen=True)
class HeadView:
    """The newest numbers of the causal head, and what is wrong with it."""

    found: HeadMetrics
    remarks: list[str]
    singular_values: list[float]  # of W3; empty before the run is finished


def reading_rows(evaluation: Evaluation) -> list[Reading]:
    """The reported prediction, then the others; nothing where there are no others, or no labels to measure them."""
    accuracy = evaluation.accuracy
    others = {name: scores["accuracy"] for name, scores in evaluation.readings.items() if "accuracy" in scores}
    if accuracy is None or not others:
        return []
    reported = Reading(REPORTED, "What all other numbers here are about.", accuracy, None)
    rows = [Reading(name, _EXPLAINED.get(name, ""), own, 100 * (own - accuracy)) for name, own in others.items()]
    return [reported, *rows]


def head_view(record: Record) -> HeadView | None:
    """None for a run without a causal head, or before its first evaluation."""
    found = head_metrics(record.history)
    if found is None:
        return None
    known = record.evaluation.summary.get("singular_values", {}) if record.evaluation else {}
    return HeadView(found, head_remarks(found), known.get("W3", []))
