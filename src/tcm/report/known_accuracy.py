"""What is known about the target accuracy of a run: measured with labels, or estimated without."""

from dataclasses import dataclass
from typing import Literal

from tcm.analysis.run_record import Record
from tcm.report.scores import wilson_interval


@dataclass(frozen=True)
class Known:
    """A target accuracy with its interval, all shares, and how it is known."""

    accuracy: float
    low: float
    high: float
    how: Literal["measured", "estimated"]
    note: str  # a sentence: on which images, or how far off the estimate usually is


def measured_accuracy(record: Record) -> Known | None:
    """The accuracy on labelled target images, with its 95% interval (Wilson, 1927); None without labels."""
    if record.evaluation is None or record.evaluation.accuracy is None:
        return None
    target, labels = record.evaluation.summary["target"], record.evaluation.arrays["labels"]
    right, count = int((record.evaluation.predictions == labels).sum()), int((labels >= 0).sum())
    every = "all" if count == target["images"] else "the"
    labelled = "" if count == target["images"] else "labelled "
    note = f"Measured on {every} {count:,} {labelled}target images; the 95% interval is that of so many images."
    return Known(record.evaluation.accuracy, *wilson_interval(right, count), "measured", note)
