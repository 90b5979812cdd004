"""Several runs side by side: one table per task, with the mean over seeds where there are several."""

from collections.abc import Sequence
from dataclasses import dataclass

from tcm.analysis.run_record import Record
from tcm.data.domains import folder_names
from tcm.estimation.estimate import Estimate
from tcm.report.known_accuracy import Known
from tcm.report.view import RunView
from tcm.results.identity import Spread, distinct, grouped, identities, labels, spread


@dataclass(frozen=True)
class RunRow:
    """One run of the comparison table; a missing number is None."""

    label: str  # unique in the page
    anchor: str
    method: str  # with the settings in which it differs from other rows
    seed: int
    steps: str
    known: Known | None
    estimate: Estimate | None
    mean_class_accuracy: float | None
    source_accuracy: float | None
    source_images: str  # on which images the source accuracy was measured
    seconds: float | None
    selection: str | None
    folder: str

    @property
    def accuracy(self) -> float | None:
        """The target accuracy, if it was measured."""
        return self.known.accuracy if self.known and self.known.how == "measured" else None


@dataclass(frozen=True)
class SeedsRow:
    """Runs that differ only in the seed, as one row."""

    method: str
    seeds: int
    accuracy: Spread | None
    mean_class_accuracy: Spread | None
    source_accuracy: Spread | None


@dataclass(frozen=True)
class RunsTable:
    """The table of one task."""

    task: tuple[str, str]
    rows: list[RunRow]
    seeds_rows: list[SeedsRow]

    def best(self, column: str) -> float | None:
        """The highest value of a column; None unless at least two runs have one."""
        values = [getattr(row, column) for row in self.rows if getattr(row, column) is not None]
        return max(values) if len(values) > 1 else None


def run_labels(records: Sequence[Record]) -> list[str]:
    """A unique label for each run: method, seed, and other differences."""
    names = [f"{name}, seed {record.config['seed']}" for name, record in zip(_methods(records), records, strict=True)]
    if len({record.task for record in records}) > 1:
        names = [f"{' → '.join(record.task)}: {name}" for name, record in zip(names, records, strict=True)]
    names = distinct(names, folder_names([record.folder for record in records]))
    return [f"{name} #{number}" if names.count(name) > 1 else name for number, name in enumerate(names, start=1)]


def _methods(records: Sequence[Record]) -> list[str]:
    """The method of each run, with the settings in which it differs from the others."""
    return labels(identities([record.facts for record in records]))


def comparisons(views: Sequence[RunView]) -> list[RunsTable]:
    """One table per task, in the order given. Runs of stage 1 have no accuracy, so they are in no table."""
    methods = _methods([view.record for view in views])
    rows = [_row(view, method) for view, method in zip(views, methods, strict=True)]
    runs = [(view.record, row) for view, row in zip(views, rows, strict=True) if not view.record.is_mechanisms]
    tasks = grouped(runs, (record.task for record, _ in runs))
    return [RunsTable(task, [row for _, row in members], _seeds_rows(members)) for task, members in tasks.items()]


def _seeds_rows(members: Sequence[tuple[Record, RunRow]]) -> list[SeedsRow]:
    finished = [(record, row) for record, row in members if record.evaluation]
    found = identities([record.facts for record, _ in finished])
    keys = [(identity, record.data) for identity, (record, _) in zip(found, finished, strict=True)]
    return [
        SeedsRow(
            method=rows[0].method,
            seeds=len(rows),
            accuracy=_spread([row.accuracy for row in rows]),
            mean_class_accuracy=_spread([row.mean_class_accuracy for row in rows]),
            source_accuracy=_spread([row.source_accuracy for row in rows]),
        )
        for rows in grouped([row for _, row in finished], keys).values()
        if len({row.seed for row in rows}) == len(rows) > 1
    ]


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return spread(known) if len(known) == len(values) else None


def _row(view: RunView, method: str) -> RunRow:
    record = view.record
    evaluation, steps, held_out = record.evaluation, record.config["steps"], record.held_out_accuracy
    return RunRow(
        label=view.label,
        anchor=view.anchor,
        method=method,
        seed=record.config["seed"],
        steps=f"{steps:,}" if evaluation else f"{record.steps_done:,} of {steps:,}",
        known=view.known,
        estimate=view.estimate,
        mean_class_accuracy=evaluation.mean_class_accuracy if evaluation else None,
        source_accuracy=record.source_accuracy if held_out is None else held_out,
        source_images="training images" if held_out is None else "held-out images",
        seconds=evaluation.summary["seconds"] if evaluation else None,
        selection=evaluation.summary["selection"] if evaluation else None,
        folder=record.folder.resolve().name,
    )
