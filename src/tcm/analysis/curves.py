"""Finished runs that differ in the seed alone, as one line with a band: accuracy against steps or against k."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tcm.analysis.load_runs import folder_names, require_distinct
from tcm.analysis.run_record import Evaluation, Record, read_record
from tcm.config import leaves
from tcm.errors import InputError, printable
from tcm.training.run_folder import ALIKE_KEYS, Run

History = Sequence[Mapping[str, Any]]  # rows of metrics.jsonl


class Curve(NamedTuple):
    """A line, and half the height of the band around it if it is a mean over seeds."""

    at: np.ndarray
    values: np.ndarray
    deviation: np.ndarray | None = None


Series = Mapping[str, Curve]


def curve(history: History, key: str) -> Curve:
    """Steps and finite values of one quantity, ascending. A step logged twice, as after a resume, counts once."""
    points = {row["step"]: float(row[key]) for row in history if is_number(row.get(key))}
    steps = sorted(points)
    return Curve(np.array(steps), np.array([points[step] for step in steps]))


def is_number(value: Any) -> bool:
    """Whether the value of a row is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


class MeasuredRun(NamedTuple):
    """A finished run with an accuracy in the target."""

    record: Record
    evaluation: Evaluation
    k: int | None  # mechanisms of a run that has some

    @property
    def settings(self) -> str:
        """All that must be equal where runs differ in the seed alone; every seed may have mechanisms of its own."""
        free = {"seed", "mechanisms", *ALIKE_KEYS}
        return json.dumps({key: value for key, value in leaves(self.record.config).items() if key not in free})

    @property
    def data(self) -> tuple[object, ...]:
        """What tells one task's images from another's, wherever they lie."""
        sizes = (self.evaluation.summary[side]["images"] for side in ("source", "target"))
        return (*self.record.task, *sizes, *self.evaluation.classes)


def accuracy_curves(folders: Sequence[Path]) -> dict[str, Curve]:
    """Target accuracy against steps, a line for each configuration: the mean over its seeds."""
    runs = read_measured(folders)
    for run in runs[1:]:
        if run.data != runs[0].data:
            tasks = [
                f"{printable(one.record.folder)} ({' → '.join(map(printable, one.record.task))})"
                for one in (runs[0], run)
            ]
            raise InputError(f"{tasks[0]} and {tasks[1]} are of different data; name runs of the same data")
    lines = grouped(runs, lambda run: (run.settings, run.k))
    return {label: over_seeds([_history(run) for run in line]) for label, line in labelled(lines).items()}


def k_curves(folders: Sequence[Path]) -> dict[str, Curve]:
    """Target accuracy against the number of mechanisms, a line for each task and configuration (Table 4)."""
    runs = read_measured(folders)
    remedy = "name runs of tcm train tcm with different numbers of mechanisms"
    for run in runs:
        if run.record.method != "tcm" or run.k is None:
            raise InputError(f"{printable(run.record.folder)} is a run of {run.record.method}; {remedy}")
    if len({run.k for run in runs}) == 1:
        raise InputError(f"every run has k = {runs[0].k}, but the figure shows accuracy against k; {remedy}")
    lines = grouped(runs, lambda run: (run.settings, *run.data))
    return {label: _against_k(line) for label, line in labelled(lines, with_k=False).items()}


def read_measured(folders: Sequence[Path]) -> list[MeasuredRun]:
    """The runs in these folders; an error unless all are finished classifiers with target labels, each given once."""
    if not folders:
        raise InputError("no run folder is named; name at least one")
    require_distinct(folders)
    found: dict[str, Path] = {}
    runs = []
    for folder in folders:
        record, about = read_record(folder), Run(folder).about_model()
        if record.evaluation is None:
            raise InputError(f"{printable(folder)} holds no classifier; name the --out of a tcm train run")
        if record.evaluation.accuracy is None:
            raise InputError(f"{printable(folder)} has no target labels, so no accuracy; name runs that have")
        run = MeasuredRun(record, record.evaluation, about.get("inverse", {}).get("k"))
        same = json.dumps([run.settings, run.k, record.config["seed"], record.config.get("mechanisms"), *run.data])
        if same in found:
            raise InputError(f"{printable(found[same])} and {printable(folder)} are the same run; name one of them")
        found[same] = folder
        runs.append(run)
    return runs


def grouped(runs: Sequence[MeasuredRun], key: Callable[[MeasuredRun], object]) -> list[list[MeasuredRun]]:
    """The runs that have the same key together, in the order in which each key first comes."""
    groups: dict[object, list[MeasuredRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def labelled(lines: Sequence[list[MeasuredRun]], with_k: bool = True) -> dict[str, list[MeasuredRun]]:
    """A label for each line: the method, and as much more as tells the lines apart; then how many seeds it has. A
    preset that is not the default is always told: the bare name means the default."""
    first = [line[0] for line in lines]
    presets = ["" for run in first]
    parts: list[list[str]] = [
        [" → ".join(run.record.task) for run in first],
        presets,
        [f"k = {run.k}" if run.k and with_k else "" for run in first],
        [f"{run.record.config['steps']} steps" for run in first],
        folder_names([run.record.folder for run in first]),
    ]
    labels = [run.record.method for run in first]
    for part in parts:
        # Only what differs among lines that are still called alike.
        meant = {label: {more for one, more in zip(labels, part, strict=True) if one == label} for label in labels}
        labels = [
            f"{label}, {more}" if more and (len(meant[label]) > 1 or (part is presets and more != "default")) else label
            for label, more in zip(labels, part, strict=True)
        ]
    labels = [f"{label}{_seeds(line)}" for label, line in zip(labels, lines, strict=True)]
    return dict(zip(labels, lines, strict=True))


def _seeds(line: Sequence[MeasuredRun]) -> str:
    """How many runs a point of the line is the mean of, in words."""
    counts = Counter(run.k for run in line).values()
    least, most = min(counts), max(counts)
    if most == 1:
        return ""
    return f" ({most} seeds)" if least == most else f" ({least} to {most} seeds)"


def over_seeds(curves: Sequence[Curve]) -> Curve:
    """The mean line where all of them have a point and, for several, the sample standard deviation around it."""
    at = np.array(sorted(set.intersection(*(set(line.at.tolist()) for line in curves))))
    values = np.array([line.values[np.isin(line.at, at)] for line in curves])
    return Curve(at, values.mean(axis=0), values.std(axis=0, ddof=1) if len(curves) > 1 else None)


def _history(run: MeasuredRun) -> Curve:
    found = curve(run.record.history, "target/accuracy")
    if not len(found.at):
        raise InputError(f"{printable(run.record.folder / 'metrics.jsonl')} tells no accuracy; train the run again")
    return found


def _against_k(line: Sequence[MeasuredRun]) -> Curve:
    numbers = sorted({run.k for run in line if run.k is not None})
    at_each = [np.array([run.evaluation.accuracy for run in line if run.k == k]) for k in numbers]
    spread = np.array([found.std(ddof=1) if len(found) > 1 else np.nan for found in at_each])
    several = bool(np.isfinite(spread).any())
    return Curve(np.array(numbers), np.array([found.mean() for found in at_each]), spread if several else None)
