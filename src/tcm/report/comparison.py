"""Several runs side by side: one table per task, with the mean over seeds where there are several."""

from collections.abc import Sequence
from dataclasses import dataclass

from tcm.analysis.run_record import Record
from tcm.results.identity import Spread, distinct, folder_names, grouped, identities, labels, spread


@dataclass(frozen=True)
class RunRow:
    """One run of the comparison table; a missing number is None."""

    label: str  # unique in the page
    anchor: str
    method: str  # with the settings that tell it from other rows
    seed: int
    steps: str
    accuracy: float | None
    mean_class_accuracy: float | None
    source_accuracy: float | None
    seconds: float | None
    selection: str | None
    folder: str


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
    """A unique label for each run: method and seed, and what else tells it from the others."""
    names = [f"{name}, seed {record.config['seed']}" for name, record in zip(_methods(records), records, strict=True)]
    if len({record.task for record in records}) > 1:
        names = [f"{' → '.join(record.task)}: {name}" for name, record in zip(names, records, strict=True)]
    names = distinct(names, folder_names([record.folder for record in records]))
    return [f"{name} #{number}" if names.count(name) > 1 else name for number, name in enumerate(names, start=1)]


def _methods(records: Sequence[Record]) -> list[str]:
    """The method of each run, with the settings that tell it from the others."""
    return labels(identities([record.facts for record in records]))


def comparisons(records: Sequence[Record], names: Sequence[str]) -> list[RunsTable]:
    """One table per task, in the order given; `names` are the runs' labels, and run i has the section `#run-i`.

    Runs of stage 1 have no accuracy, so they are in no table.
    """
    rows = [
        _row(record, name, method, f"run-{number}")
        for number, (record, name, method) in enumerate(zip(records, names, _methods(records), strict=True), start=1)
    ]
    runs = [(record, row) for record, row in zip(records, rows, strict=True) if not record.is_mechanisms]
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


def _row(record: Record, label: str, method: str, anchor: str) -> RunRow:
    evaluation, steps = record.evaluation, record.config["steps"]
    return RunRow(
        label=label,
        anchor=anchor,
        method=method,
        seed=record.config["seed"],
        steps=f"{steps:,}" if evaluation else f"{record.steps_done:,} of {steps:,}",
        accuracy=evaluation.accuracy if evaluation else None,
        mean_class_accuracy=evaluation.mean_class_accuracy if evaluation else None,
        source_accuracy=record.source_accuracy,
        seconds=evaluation.summary["seconds"] if evaluation else None,
        selection=evaluation.summary["selection"] if evaluation else None,
        folder=record.folder.resolve().name,
    )
