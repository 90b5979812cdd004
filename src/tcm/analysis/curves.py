"""Accuracy against steps or against k: the mean of runs that differ only in the seed, with its deviation."""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tcm.analysis.load_runs import require_distinct
from tcm.analysis.run_record import Record, read_record
from tcm.data.domains import folder_names
from tcm.errors import InputError, printable
from tcm.results.identity import distinct, grouped, identities, labels, spread
from tcm.training.run_folder import Run

History = Sequence[Mapping[str, Any]]  # rows of metrics.jsonl


class Curve(NamedTuple):
    """The points of a line and, of a mean over seeds, the standard deviation at each."""

    at: np.ndarray
    values: np.ndarray
    deviation: np.ndarray | None = None


Series = Mapping[str, Curve]


def curve(history: History, key: str) -> Curve:
    """The finite values of one quantity by step. Of a step that is logged twice, as after a resume, the last counts."""
    points = {row["step"]: float(row[key]) for row in history if is_number(row.get(key))}
    steps = sorted(points)
    return Curve(np.array(steps), np.array([points[step] for step in steps]))


def is_number(value: Any) -> bool:
    """Whether the value of a row is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


class MeasuredRun(NamedTuple):
    """A finished run with an accuracy on the target."""

    record: Record
    accuracy: float

    @property
    def k(self) -> int | None:
        """The number of mechanisms; None without any."""
        return int(self.record.facts.k) if self.record.facts.k else None


def accuracy_curves(folders: Sequence[Path]) -> dict[str, Curve]:
    """Target accuracy against steps: one line per configuration, the mean over its seeds."""
    runs = read_measured(folders)
    for run in runs[1:]:
        if run.record.data != runs[0].record.data:
            one, other = (
                f"{printable(record.folder)} ({' → '.join(map(printable, record.task))})"
                for record in (runs[0].record, run.record)
            )
            raise InputError(f"{one} and {other} have different data; name runs on the same data")
    return {label: over_seeds([_history(run) for run in group]) for label, group in labelled_groups(runs).items()}


def k_curves(folders: Sequence[Path]) -> dict[str, Curve]:
    """Target accuracy against the number of mechanisms: one line per task and configuration (TCM Table 4)."""
    runs = read_measured(folders)
    remedy = "name runs with different numbers of mechanisms"
    for run in runs:
        if run.k is None:
            raise InputError(f"{printable(run.record.folder)} is a run of {run.record.method}, without k; {remedy}")
    if len({run.k for run in runs}) == 1:
        raise InputError(f"every run has k = {runs[0].k}, but the figure shows accuracy against k; {remedy}")
    groups = labelled_groups(runs, free=("k", "mechanisms.k"))
    return {label: _against_k(group) for label, group in groups.items()}


def read_measured(folders: Sequence[Path]) -> list[MeasuredRun]:
    """The runs in these folders; an error unless all are finished classifiers with target labels, each given once."""
    if not folders:
        raise InputError("no run folder is given; name at least one")
    require_distinct(folders)
    runs = []
    for folder in folders:
        record = read_record(folder)
        Run(folder).about_model()  # an error unless it is finished
        if record.evaluation is None:
            raise InputError(f"{printable(folder)} holds no classifier; name the folder of a tcm train run")
        if record.evaluation.accuracy is None:
            raise InputError(f"{printable(folder)} has no target labels, so no accuracy; name runs that have")
        runs.append(MeasuredRun(record, record.evaluation.accuracy))
    found: dict[Hashable, Path] = {}
    for run, identity in zip(runs, identities([run.record.facts for run in runs]), strict=True):
        config, folder = run.record.config, run.record.folder
        first = found.setdefault((identity, config["seed"], config.get("mechanisms"), run.record.data), folder)
        if first != folder:
            raise InputError(f"{printable(first)} and {printable(folder)} are the same run; name one of them")
    return runs


def labelled_groups(runs: Sequence[MeasuredRun], free: Collection[str] = ()) -> dict[str, list[MeasuredRun]]:
    """Runs on the same data that differ only in the seed and in `free`, by a label that also counts the seeds."""
    found = identities([run.record.facts for run in runs], free)
    groups = grouped(runs, ((one, run.record.data) for one, run in zip(found, runs, strict=True)))
    first = [group[0].record for group in groups.values()]
    tasks, folders = [" → ".join(record.task) for record in first], folder_names([record.folder for record in first])
    names = distinct(labels([identity for identity, _ in groups]), tasks, folders)
    return {f"{name}{_seeds(group)}": group for name, group in zip(names, groups.values(), strict=True)}


def _seeds(line: Sequence[MeasuredRun]) -> str:
    """How many runs each point of the line is the mean of, in words."""
    counts = Counter(run.k for run in line).values()
    least, most = min(counts), max(counts)
    if most == 1:
        return ""
    return f" ({most} seeds)" if least == most else f" ({least} to {most} seeds)"


def over_seeds(curves: Sequence[Curve]) -> Curve:
    """The mean where all curves have a point and, of several, the sample standard deviation around it."""
    at = sorted(set.intersection(*(set(line.at.tolist()) for line in curves)))
    values = np.array([line.values[np.isin(line.at, at)] for line in curves])
    return _spread_curve(at, values.T.tolist())


def _history(run: MeasuredRun) -> Curve:
    found = curve(run.record.history, "target/accuracy")
    if not len(found.at):
        file = printable(run.record.folder / "metrics.jsonl")
        raise InputError(f"{file} has no target accuracy; train the run again")
    return found


def _against_k(group: Sequence[MeasuredRun]) -> Curve:
    by_k = grouped((run.accuracy for run in group), (run.k or 0 for run in group))
    numbers = sorted(by_k)
    return _spread_curve(numbers, [by_k[k] for k in numbers])


def _spread_curve(at: Sequence[int], values: Sequence[Sequence[float]]) -> Curve:
    """The mean of the values at each place; the deviation is NaN for a single value, None if all are single."""
    found = [spread(some) for some in values]
    deviations = np.array([np.nan if one.deviation is None else one.deviation for one in found])
    several = np.isfinite(deviations).any()
    return Curve(np.array(at), np.array([one.mean for one in found]), deviations if several else None)
