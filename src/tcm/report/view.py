"""Records to what the template shows: every number, bar, figure and thumbnail."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from tcm.analysis.run_record import Evaluation, Record
from tcm.classifier.evaluate import confusion_counts
from tcm.classifier.selection import collapse_warning
from tcm.config import leaves
from tcm.estimation.calibration import reliability
from tcm.estimation.estimate import Estimate
from tcm.figures.confusion import confusion_figure
from tcm.figures.reliability import reliability_figure
from tcm.figures.svg import inline_svg
from tcm.report.class_table import ClassRow, ConfusionTable, class_rows, confusion_table
from tcm.report.known_accuracy import Known, known_accuracy, run_estimate
from tcm.report.mechanisms import Loaded, MechanismsView, mechanisms_view
from tcm.report.pictures import Picture, picture
from tcm.report.prediction_variants import HeadView, VariantRow, head_view, variant_rows
from tcm.report.scores import Bar, Pair, confidence_bars, confused_pairs
from tcm.report.selection import Choice, choices

PICTURES = 24  # in a gallery


@dataclass(frozen=True)
class LabelledView:
    """What only labels can show."""

    confusion: ConfusionTable
    whole_confusion: Markup | None  # of many classes, as a figure
    pairs: list[Pair]
    mistakes: list[Picture]
    calibration: Markup
    calibration_error: float
    mean_confidence: float


@dataclass(frozen=True)
class PredictionsView:
    """What is shown of the predictions for a target, with or without labels."""

    classes: list[ClassRow]
    doubtful: list[Picture]  # the least certain prediction first
    certain: list[Picture]  # of a target without labels, the most certain prediction first
    confidence_bars: list[Bar]
    labelled: LabelledView | None


@dataclass(frozen=True)
class RunView:
    """All that the template shows of one run."""

    label: str
    anchor: str
    record: Record
    known: Known | None
    estimate: Estimate | None
    predictions: PredictionsView | None
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
        if self.known:
            return f"{self.known.accuracy:.1%} target accuracy, {self.known.how}"
        if self.mechanisms and self.record.finished:
            return f"{self.mechanisms.k} mechanisms" if self.mechanisms.galleries else "images missing"
        return "no target labels" if self.predictions else "unfinished"


@dataclass(frozen=True)
class Samples:
    """Images of both domains of one task."""

    task: tuple[str, str]
    source: list[Picture]
    target: list[Picture]


def run_view(
    record: Record,
    label: str,
    anchor: str,
    loaded: Loaded = Loaded(),
    judgement: Mapping[str, Any] | None = None,
    pictures: int = PICTURES,
) -> RunView:
    """What is shown of one run, in the section `#anchor`, with at most so many `pictures` in a gallery."""
    evaluation = record.evaluation
    estimate = run_estimate(record)
    return RunView(
        label=label,
        anchor=anchor,
        record=record,
        known=known_accuracy(record, estimate),
        estimate=estimate,
        predictions=_predictions(evaluation, anchor, pictures) if evaluation else None,
        variants=variant_rows(evaluation) if evaluation else [],
        choices=choices(record) if evaluation else [],
        collapse=collapse_warning(record.history, len(evaluation.classes)) if evaluation else "",
        head=head_view(record),
        mechanisms=mechanisms_view(record, anchor, loaded, judgement) if record.is_mechanisms else None,
        settings={key: _plain(value) for key, value in leaves(record.config).items()},
        environment={key: _plain(value) for key, value in leaves(record.environment).items()},
    )


def _predictions(evaluation: Evaluation, name: str, pictures: int) -> PredictionsView:
    labelled = evaluation.accuracy is not None
    order = np.argsort(evaluation.confidence, kind="stable")
    least = set(order[:PICTURES].tolist())
    most = set(evaluation.arrays["shown_index"].tolist()) - least
    return PredictionsView(
        classes=class_rows(evaluation),
        doubtful=_gallery(evaluation, least, pictures),
        certain=[] if labelled else _gallery(evaluation, most, pictures // 2)[::-1],
        confidence_bars=confidence_bars(evaluation.confidence),
        labelled=_labelled(evaluation, name, pictures) if labelled else None,
    )


def _labelled(evaluation: Evaluation, name: str, pictures: int) -> LabelledView:
    labels, classes = evaluation.arrays["labels"], evaluation.classes
    matrix = confusion_counts(labels, evaluation.predictions, len(classes))
    table = confusion_table(matrix, classes)
    whole = None
    if not table.whole:
        description = f"Confusion matrix of {len(classes)} classes; the most frequent confusions are listed beside it."
        whole = Markup(inline_svg(confusion_figure(matrix, classes), f"{name}-confusion", description))
    curve = reliability(evaluation.arrays["probabilities"], labels)
    assert curve is not None, "there are labels"
    figure = reliability_figure(curve.confidence.tolist(), curve.accuracy.tolist(), curve.images.tolist())
    about = f"Accuracy against confidence. The expected calibration error is {curve.expected_calibration_error:.1%}."
    wrong = np.flatnonzero((labels >= 0) & (evaluation.predictions != labels))
    sure = wrong[np.argsort(-evaluation.confidence[wrong], kind="stable")][: pictures // 2]
    return LabelledView(
        confusion=table,
        whole_confusion=whole,
        pairs=confused_pairs(matrix, classes),
        mistakes=_gallery(evaluation, set(sure.tolist()), pictures // 2)[::-1],
        calibration=Markup(inline_svg(figure, f"{name}-calibration", about)),
        calibration_error=curve.expected_calibration_error,
        mean_confidence=float(evaluation.confidence[labels >= 0].mean()),
    )


def _gallery(evaluation: Evaluation, wanted: set[int], most: int) -> list[Picture]:
    """The wanted target images of those that the evaluation keeps to show, the least certain prediction first."""
    shown = evaluation.arrays["shown_index"]
    order = np.argsort(evaluation.confidence[shown], kind="stable")
    places = dict.fromkeys(int(place) for place in order if int(shown[place]) in wanted)
    return [_picture(evaluation, place) for place in list(places)[:most]]


def _picture(evaluation: Evaluation, place: int) -> Picture:
    index, names = evaluation.arrays["shown_index"][place], evaluation.classes
    row, label = evaluation.arrays["probabilities"][index], evaluation.arrays["labels"][index]
    first, *rest = np.argsort(-row, kind="stable")[:2].tolist()
    return picture(
        evaluation.arrays["shown_images"][place],
        true=names[label] if label >= 0 else "",
        predicted=names[first],
        confidence=float(row[first]),
        second=names[rest[0]] if rest else "",
        second_confidence=float(row[rest[0]]) if rest else 0.0,
        path=str(evaluation.arrays["paths"][index]),
    )


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
