"""What is known about the target accuracy of a run: measured with labels, audited by hand, or estimated."""

from dataclasses import dataclass
from typing import Literal

from tcm.analysis.run_record import Record
from tcm.errors import InputError
from tcm.estimation.audit import read_audit
from tcm.estimation.estimate import Estimate, estimate, read_estimate
from tcm.estimation.inputs import read_predictions
from tcm.report.scores import wilson_interval


@dataclass(frozen=True)
class Known:
    """A target accuracy with its interval, all shares, and how it is known."""

    accuracy: float
    low: float
    high: float
    how: Literal["measured", "audited", "estimated"]
    level: float  # of the interval: 0.95, or the share of known cases whose truth the interval of an estimate contained
    note: str  # a sentence: on which images, or how far off the estimate usually is


def measured_accuracy(record: Record) -> Known | None:
    """The accuracy on labelled target images, with its 95% interval (Wilson, 1927); None without labels."""
    if record.evaluation is None or record.evaluation.accuracy is None:
        return None
    target, labels = record.evaluation.summary["target"], record.evaluation.arrays["labels"]
    right, count = int((record.evaluation.predictions == labels).sum()), int((labels >= 0).sum())
    every = "all" if count == target["images"] else "the"
    labelled = "" if count == target["images"] else "labelled "
    note = f"Measured on {every} {count:,} {labelled}target images, with a 95% confidence interval."
    return Known(record.evaluation.accuracy, *wilson_interval(right, count), "measured", 0.95, note)


def run_estimate(record: Record) -> Estimate | None:
    """The estimate without target labels that the run has, or a new one; None for runs of versions that kept no
    predictions for the source."""
    if record.evaluation is None:
        return None
    found = read_estimate(record.folder)
    if found:
        return found
    try:
        return estimate(read_predictions(record.folder))
    except InputError:
        return None


def known_accuracy(record: Record, found: Estimate | None) -> Known | None:
    """The best that is known: measured, else audited, else estimated."""
    measured = measured_accuracy(record)
    if measured or record.evaluation is None:
        return measured
    audit = read_audit(record.folder)
    if audit:
        labelled = f"{audit.right} of {audit.labelled} images that a person labelled are right"
        note = f"Audited: {labelled}. The {100 * audit.level:.0f}% interval is exact."
        return Known(audit.accuracy, audit.low, audit.high, "audited", audit.level, note)
    if found is None:
        return None
    share, points = f"{100 * found.level:.0f}%", f"{100 * found.error:.0f} points"
    known = f"On {found.cases} known cases the estimate was off by {points} on average"
    note = f"Estimated without labels. {known}, and the interval contained the truth in {share} of them."
    return Known(found.accuracy, found.low, found.high, "estimated", found.level, note)
