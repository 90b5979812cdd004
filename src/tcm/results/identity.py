"""Are these the same run but for the seed? Tables, figures, reports and benchmarks all ask here.

Runs that differ only in the seed have equal `identities`. `labels` name the settings in which other runs differ.
`spread` is the mean and the sample standard deviation over seeds.
"""

import json
import statistics
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tcm.config import leaves
from tcm.training.run_folder import IGNORED_KEYS

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

# Settings in which the runs of one group may differ: the seed, places of files, and what does not change the method. In
# the configs of older rows there is a `preset`, which is part of the name of their method.
_PLACES = ("benchmark", "root", "source", "target", "source_dir", "target_dir", "source_list", "target_list")
_FREE = {"seed", "preset", "method_name", "mechanisms.name", *IGNORED_KEYS, *(f"data.{key}" for key in _PLACES)}
_STAGE_1_STEPS = "mechanisms.steps"
_NONE = json.dumps("none")


class RunFacts(NamedTuple):
    """What identifies a run."""

    method: str
    k: str  # number of mechanisms, empty without any
    data: Hashable  # equal for runs on the same task
    config: dict[str, Any]  # of `portable_config`


class RunIdentity(NamedTuple):
    """What the runs of one group have in common."""

    method: str
    k: str
    settings: tuple[tuple[str, str], ...]  # all other settings that count: key and value as JSON, sorted


def identities(runs: Sequence[RunFacts], free: Collection[str] = ()) -> list[RunIdentity]:
    """The identity of every run, without the settings in `free` ("k" is the number of mechanisms).

    Stage 1's steps count only if they differ within a task: an epoch of a larger domain has more of them.
    """
    without = [_identity(run, {*free, _STAGE_1_STEPS}) for run in runs]
    places = [(identity, run.data) for identity, run in zip(without, runs, strict=True)]
    lengths = grouped([leaves(run.config).get(_STAGE_1_STEPS) for run in runs], places)
    if all(len(set(steps)) == 1 for steps in lengths.values()):
        return without
    return [_identity(run, free) for run in runs]


def _identity(run: RunFacts, free: Collection[str]) -> RunIdentity:
    ignored = {*_FREE, *free}
    counted = {
        key: json.dumps(value)
        for key, value in leaves(run.config).items()
        if value is not None and not {key, key.split(".")[0]} & ignored
    }
    return RunIdentity(run.method, "" if "k" in free else run.k, tuple(sorted(counted.items())))


def labels(found: Sequence[RunIdentity], everywhere: Collection[str] = ()) -> list[str]:
    """A label for each identity: the method, then k, then the settings in which runs of that method and k differ.

    Settings in `everywhere` are named if any two runs differ in them, even if their methods differ.
    """
    settings = {one: dict(one.settings) for one in found}
    named = {one: _label(one, settings, everywhere) for one in settings}
    return [named[one] for one in found]


def _label(one: RunIdentity, settings: Mapping[RunIdentity, dict[str, str]], everywhere: Collection[str]) -> str:
    same_method = [other for other in settings if other.method == one.method]
    same_k = [other for other in same_method if other.k == one.k]
    # Mechanisms of different forms differ in most settings of their bank: the form is enough to name.
    same_form = [other for other in same_k if _form(settings[other]) == _form(settings[one])]
    parts = [one.method]
    if one.k and len({other.k for other in same_method}) > 1:
        parts.append(f"k = {one.k}")
    for key in sorted({key for other in same_k for key in settings[other]}):
        compared = same_form if key.startswith("mechanisms.bank.") else same_k
        if len({settings[other].get(key) for other in (settings if key in everywhere else compared)}) > 1:
            parts.append(f"{key} {json.loads(settings[one].get(key, _NONE))}")
    return ", ".join(parts)


def _form(settings: Mapping[str, str]) -> str | None:
    return settings.get("mechanisms.form", settings.get("mechanisms.preset"))  # the latter in older rows


def distinct(names: Sequence[str], *details: Sequence[str]) -> list[str]:
    """The names, where equal ones are followed by the first details that differ: `details` has lists as long."""
    for detail in details:
        found = grouped(detail, names)
        pairs = zip(names, detail, strict=True)
        names = [f"{name}, {more}" if more and len(set(found[name])) > 1 else name for name, more in pairs]
    return list(names)


def grouped(items: Iterable[T], keys: Iterable[K]) -> dict[K, list[T]]:
    """The items of equal keys together, in the order in which each key first appears."""
    groups: dict[K, list[T]] = {}
    for item, key in zip(items, keys, strict=True):
        groups.setdefault(key, []).append(item)
    return groups


class Spread(NamedTuple):
    """A mean over seeds with its sample standard deviation."""

    mean: float
    deviation: float | None  # None of a single seed, or where it is not known
    seeds: int | None  # None where it is not known

    def text(self, digits: int = 1) -> str:
        """Such as 71.3 ± 1.2."""
        deviation = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:.{digits}f}{deviation}"


def spread(values: Iterable[float]) -> Spread:
    """Mean and sample standard deviation of one value per seed."""
    found = list(values)
    return Spread(statistics.mean(found), statistics.stdev(found) if len(found) > 1 else None, len(found))
