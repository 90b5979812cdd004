"""Several runs side by side: one table per task, with the mean over seeds where a method has several."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tcm.analysis.run_record import Record
from tcm.config import leaves
from tcm.training.run_folder import IGNORED_KEYS


@dataclass(frozen=True)
class RunRow:
    """One run of the comparison table; a missing number is None."""

    label: str
    anchor: str
    method: str
    seed: int
    steps: str
    accuracy: float | None
    mean_class_accuracy: float | None
    source_accuracy: float | None
    seconds: float | None
    selection: str | None
    folder: str


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of one quantity over seeds."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class SeedsRow:
    """Runs that differ in the seed alone, as one row."""

    method: str
    seeds: int
    accuracy: Spread | None
    mean_class_accuracy: Spread | None
    source_accuracy: Spread | None


@dataclass(frozen=True)
class RunsTable:
    """The table of one task, and the highest value of each accuracy among its rows."""

    task: tuple[str, str]
    rows: list[RunRow]
    seeds_rows: list[SeedsRow]

    def best(self, column: str) -> float | None:
        """The highest value of a column; None where fewer than two runs have one, since nothing is compared then."""
        values = [getattr(row, column) for row in self.rows if getattr(row, column) is not None]
        return max(values) if len(values) > 1 else None


def run_labels(records: Sequence[Record]) -> list[str]:
    """A short unique name for each run: method and seed, with task or folder added where these are not enough."""
    labels = [f"{record.method}, seed {record.config['seed']}" for record in records]
    if len({record.task for record in records}) > 1:
        labels = [f"{' → '.join(record.task)}: {label}" for record, label in zip(records, labels, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({record.folder.resolve().name})" for record, label in zip(records, labels, strict=True)]
    return [f"{label} #{i + 1}" if labels.count(label) > 1 else label for i, label in enumerate(labels)]


def comparisons(records: Sequence[Record], labels: Sequence[str]) -> list[RunsTable]:
    """One table per task, tasks and runs in the order given; the k-th run's section is `#run-k`.

    Runs of stage 1 have no accuracy and stand in no table.
    """
    tasks: dict[tuple[str, str], list[tuple[Record, RunRow]]] = {}
    for index, (record, label) in enumerate(zip(records, labels, strict=True), start=1):
        if not record.is_mechanisms:
            tasks.setdefault(record.task, []).append((record, _row(record, label, f"run-{index}")))
    return [RunsTable(task, [row for _, row in members], _seeds_rows(members)) for task, members in tasks.items()]


def _seeds_rows(members: Sequence[tuple[Record, RunRow]]) -> list[SeedsRow]:
    groups: dict[str, list[RunRow]] = {}
    for record, row in members:
        if record.evaluation:
            fixed = {key: value for key, value in leaves(record.config).items() if key not in {"seed", *IGNORED_KEYS}}
            groups.setdefault(json.dumps(fixed, sort_keys=True), []).append(row)
    return [
        SeedsRow(
            method=rows[0].method,
            seeds=len({row.seed for row in rows}),
            accuracy=_spread([row.accuracy for row in rows]),
            mean_class_accuracy=_spread([row.mean_class_accuracy for row in rows]),
            source_accuracy=_spread([row.source_accuracy for row in rows]),
        )
        for rows in groups.values()
        if len({row.seed for row in rows}) == len(rows) > 1
    ]


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(statistics.mean(known), statistics.stdev(known)) if len(known) == len(values) else None


def _row(record: Record, label: str, anchor: str) -> RunRow:
    evaluation, steps = record.evaluation, record.config["steps"]
    return RunRow(
        label=label,
        anchor=anchor,
        method=record.method,
        seed=record.config["seed"],
        steps=f"{steps:,}" if evaluation else f"{record.steps_done:,} of {steps:,}",
        accuracy=evaluation.accuracy if evaluation else None,
        mean_class_accuracy=evaluation.mean_class_accuracy if evaluation else None,
        source_accuracy=record.source_accuracy,
        seconds=evaluation.summary["seconds"] if evaluation else None,
        selection=evaluation.summary["selection"] if evaluation else None,
        folder=record.folder.resolve().name,
    )
