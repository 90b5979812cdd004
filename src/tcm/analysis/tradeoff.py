"""What a method costs and what it reaches: target accuracy, minutes of training and memory, from rows of results."""

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tcm.data.domains import plain_name
from tcm.errors import InputError, printable
from tcm.results.identity import RunIdentity, Spread, grouped, spread
from tcm.results.store import ResultRow
from tcm.results.table import row_identities, row_labels


class Effort(NamedTuple):
    """A method on a task: means over seeds."""

    label: str
    accuracy: Spread  # on the target, in %
    minutes: float
    memory: float | None  # of the GPU, in GB; None if no row has it


class Tradeoff(NamedTuple):
    """The methods that were measured on one task and one kind of device."""

    benchmark: str
    task: str
    device: str
    efforts: list[Effort]


def tradeoff(
    rows: Sequence[ResultRow], benchmark: str | None = None, task: str | None = None, selection: str = "last"
) -> Tradeoff:
    """What each method costs and reaches on a task.

    By default the benchmark and the task are those of the most methods. Of several devices, only the one of the most
    rows counts, because minutes on different devices cannot be compared. The minutes are those of stage 2.
    """
    timed = [row for row in rows if row["selection"] == selection and row["accuracy"] and row["seconds"]]
    if not timed:
        found = f'no row has an accuracy and seconds with the selection rule "{printable(selection)}"'
        raise InputError("selection", f"is {printable(selection)}, but {found}; choose another")
    timed = _chosen(timed, "benchmark", benchmark)
    timed = _chosen(timed, "task", task)
    device = Counter(row["device"] for row in timed).most_common(1)[0][0]
    timed = without_other_ks([row for row in timed if row["device"] == device])
    found = grouped(timed, row_identities(timed))
    efforts = [
        Effort(
            label,
            spread(float(row["accuracy"]) for row in members),
            statistics.mean(float(row["seconds"]) for row in members) / 60,
            _mean([float(row["memory"]) for row in members if row["memory"]]),
        )
        for label, members in zip(_short_labels(list(found)), found.values(), strict=True)
    ]
    return Tradeoff(timed[0]["benchmark"], timed[0]["task"], device, efforts)


def without_other_ks(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows without those of other numbers of mechanisms, for methods that were also run with the usual number.

    The usual number is the one of the most methods.
    """
    numbers = {(row["method"], row["k"]) for row in rows if row["k"]}
    often = Counter(k for _, k in numbers)
    usual = max(often, key=lambda k: (often[k], int(k)), default="")
    return [row for row in rows if row["k"] == usual or (row["method"], usual) not in numbers]


def _chosen(rows: Sequence[ResultRow], column: str, wanted: str | None) -> list[ResultRow]:
    """The rows with that value in the column, in any spelling; by default those with the most methods."""
    methods: dict[str, set[str]] = {}
    for row in rows:
        methods.setdefault(row[column], set()).add(row["method"])
    if wanted is None:
        wanted = max(methods, key=lambda value: len(methods[value]))
    plain = plain_name(wanted.replace("2", ">") if column == "task" else wanted)
    found = [row for row in rows if plain_name(row[column]) == plain]
    if not found:
        there = ", ".join(map(printable, methods))
        raise InputError(column, f"is {printable(wanted)}, but the results are on {there}; choose one of them")
    return found


def _short_labels(found: Sequence[RunIdentity]) -> list[str]:
    """The name of the method, where it is enough; then with its steps; then as in tables."""
    names = [one.method for one in found]
    steps = [f"{one.method}, {_steps(one)} steps" for one in found]
    often, of_steps = Counter(names), Counter(steps)
    return [
        name if often[name] == 1 else (more if of_steps[more] == 1 else full)
        for name, more, full in zip(names, steps, row_labels(found), strict=True)
    ]


def _steps(one: RunIdentity) -> str:
    return f"{int(json.loads(dict(one.settings).get('steps', '0'))):,}"


def _mean(values: Sequence[float]) -> float | None:
    return statistics.mean(values) if values else None
