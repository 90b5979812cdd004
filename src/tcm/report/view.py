"""Records to what the template shows: every number, bar, figure and thumbnail."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from tcm.analysis.run_record import Evaluation, Record
from tcm.classifier.evaluate import confusion_counts
from tcm.classifier.selection import collapse_warning
from tcm.config import leaves
from tcm.figures.confusion import confusion_figure
from tcm.figures.svg import inline_svg
from tcm.report.mechanisms import MechanismsView, mechanisms_view
from tcm.report.pictures import Picture, picture
from tcm.report.prediction_variants import HeadView, VariantRow, head_view, variant_rows
from tcm.report.scores import (
    Bar,
    Pair,
    class_bars,
    confidence_bars,
    confused_pairs,
    prediction_bars,
    wilson_interval,
)
from tcm.report.selection import Choice, choices


@dataclass(frozen=True)
class LabelledView:
    """What is shown of a labelled target."""

    interval: tuple[float, float]
    mean_confidence: float
    confusion: Markup
    pairs: list[Pair]
    class_bars: list[Bar]
    mistakes: list[Picture]


@dataclass(frozen=True)
class Unmeasured:
    """What is shown of a target without labels."""

    prediction_bars: list[Bar]
    confidence_bars: list[Bar]
    most_confident: list[Picture]
    least_confident: list[Picture]


@dataclass(frozen=True)
class RunView:
    """All that the template shows of one run."""

    label: str
    anchor: str
    record: Record
    measured: LabelledView | None
    unmeasured: Unmeasured | None
    variants: list[VariantRow]
    choices: list[Choice]
    collapse: str  # a warning, or nothing
    head: HeadView | None
    mechanisms: MechanismsView | None
    settings: dict[str, str]
    environment: dict[str, str]

    @property
    def score(self) -> str:
        """The state of the run in a few words."""
        if self.measured and self.record.evaluation:
            return f"{self.record.evaluation.accuracy:.1%} target accuracy"
        if self.mechanisms and self.record.finished:
            return f"{self.mechanisms.k} mechanisms" if self.mechanisms.galleries else "images missing"
        return "no target labels" if self.unmeasured else "unfinished"


@dataclass(frozen=True)
class Samples:
    """Images of both domains of one task."""

    task: tuple[str, str]
    source: list[Picture]
    target: list[Picture]


def run_view(record: Record, label: str, anchor: str) -> RunView:
    """What is shown of one run, in the section `#anchor`."""
    evaluation = record.evaluation
    labelled = evaluation is not None and evaluation.accuracy is not None
    return RunView(
        label=label,
        anchor=anchor,
        record=record,
        measured=_measured(evaluation, anchor) if evaluation and labelled else None,
        unmeasured=_unmeasured(evaluation) if evaluation and not labelled else None,
        variants=variant_rows(evaluation) if evaluation else [],
        choices=choices(record) if evaluation else [],
        collapse=collapse_warning(record.history, len(evaluation.classes)) if evaluation else "",
        head=head_view(record),
        mechanisms=mechanisms_view(record, anchor) if record.is_mechanisms else None,
        settings={key: _plain(value) for key, value in leaves(record.config).items()},
        environment={key: _plain(value) for key, value in leaves(record.environment).items()},
    )


def _measured(evaluation: Evaluation, name: str) -> LabelledView:
    labels, classes = evaluation.arrays["labels"], evaluation.classes
    matrix = confusion_counts(labels, evaluation.predictions, len(classes))
    description = f"Confusion matrix of {len(classes)} classes; the most frequent confusions are listed beside it."
    return LabelledView(
        interval=wilson_interval(int((evaluation.predictions == labels).sum()), int((labels >= 0).sum())),
        mean_confidence=float(evaluation.confidence[labels >= 0].mean()),
        confusion=Markup(inline_svg(confusion_figure(matrix, classes), f"{name}-confusion", description)),
        pairs=confused_pairs(matrix, classes),
        class_bars=class_bars(matrix, classes),
        mistakes=_gallery(evaluation),
    )


def _unmeasured(evaluation: Evaluation) -> Unmeasured:
    pictures = _gallery(evaluation)
    half = (len(pictures) + 1) // 2
    return Unmeasured(
        prediction_bars=prediction_bars(evaluation.predictions, evaluation.classes),
        confidence_bars=confidence_bars(evaluation.confidence),
        most_confident=pictures[:half],
        least_confident=pictures[half:][::-1],
    )


def _gallery(evaluation: Evaluation) -> list[Picture]:
    """The target images that the evaluation keeps to show, the most confident prediction first."""
    shown = evaluation.arrays["shown_index"]
    names, labels = evaluation.classes, evaluation.arrays["labels"]
    return [
        picture(
            evaluation.arrays["shown_images"][position],
            true=names[labels[shown[position]]] if labels[shown[position]] >= 0 else "",
            predicted=names[evaluation.predictions[shown[position]]],
            confidence=float(evaluation.confidence[shown[position]]),
            path=str(evaluation.arrays["paths"][shown[position]]),
        )
        for position in np.argsort(-evaluation.confidence[shown], kind="stable")
    ]


def task_samples(records: Iterable[Record]) -> list[Samples]:
    """Images of each task's domains, from its first evaluated run."""
    found: dict[tuple[str, str], Samples] = {}
    for record in records:
        if record.evaluation and record.task not in found:
            arrays, names = record.evaluation.arrays, record.evaluation.classes
            source = zip(arrays["source_images"], arrays["source_labels"], strict=True)
            found[record.task] = Samples(
                record.task,
                [picture(image, true=names[label]) for image, label in source],
                list(map(picture, arrays["target_images"])),
            )
    return list(found.values())


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
