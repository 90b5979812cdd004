"""The evaluation of a run that each selection rule chooses."""

from dataclasses import dataclass

from tcm.analysis.run_record import Record
from tcm.classifier.selection import ACCURACY, PREFIX, RULES, selected

EXPLAINED = {
    "last": "The last iterate, which is reported.",
    "entropy": "The most confident predictions on the target.",
    "information": "Confident predictions on the target that are spread over the classes.",
    "snd": "Soft neighbourhood density: target images with similar predictions.",
    "dev": "Deep embedded validation: the error on source images, weighted by how similar they are to target images.",
    "source": "The accuracy on source images.",
    "oracle": "The highest target accuracy. It takes target labels to find it, so it is not a result.",
}


@dataclass(frozen=True)
class Choice:
    """One row: the evaluation that a rule chooses."""

    rule: str
    explanation: str
    step: int
    accuracy: float
    is_oracle: bool


def choices(record: Record) -> list[Choice]:
    """The choice of every rule that the run has scores for; empty without scores, without target labels, or if there is
    only one evaluation to choose."""
    if len({row["step"] for row in record.history if ACCURACY in row}) == 1:
        return []
    known = {key for row in record.history for key in row}
    rules = [rule for rule in RULES if rule in ("last", "oracle") or PREFIX + rule in known]
    if ACCURACY not in known or len(rules) == 2:
        return []
    chosen = [(rule, selected(record.history, rule)) for rule in rules]
    return [
        Choice(rule, EXPLAINED[rule], found.step, found.accuracy, rule == "oracle")
        for rule, found in chosen
        if found.accuracy is not None
    ]
