"""What is finished in a suite's folder, by the names that `suite.py` gives."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tcm.bench.config import DIGITS, DIGITS_K, ENTRIES, MECHANISMS, PROTOCOLS, SuiteConfig
from tcm.bench.plan import given, pair_name
from tcm.data.benchmarks import benchmark_named
from tcm.training.run_folder import Run

RIVALS = ("baseline", "cdan-e", "dann", "erm")  # with which tcm is compared, the first that is there

_NAME = re.compile(r"(?P<entry>.+?)(-k(?P<k>\d+))?-s(?P<seed>\d+)")


class SuiteRun(NamedTuple):
    """A finished run of stage 2."""

    folder: Path
    task: str  # A2C
    entry: str  # tcm-paper
    k: int | None
    seed: int


def finished_runs(benchmark: str, out: Path) -> list[SuiteRun]:
    """Those of a suite's folder: tasks and methods in the order of tables, then k and seeds ascending."""
    return [run for task in _tasks(benchmark) for run in _runs_of(out / "runs" / task, task)]


def _tasks(benchmark: str) -> list[str]:
    if benchmark == DIGITS:
        return [DIGITS]
    return [transfer.code.replace(">", "2") for transfer in benchmark_named(benchmark).tasks]


def _runs_of(folder: Path, task: str) -> Iterator[SuiteRun]:
    names = [_NAME.fullmatch(file.name) for file in sorted(folder.glob("*")) if Run(file).finished]
    found = [
        SuiteRun(folder / name.string, task, name["entry"], int(name["k"]) if name["k"] else None, int(name["seed"]))
        for name in names
        if name and name["entry"] in ENTRIES
    ]
    order = list(ENTRIES)
    yield from sorted(found, key=lambda run: (order.index(run.entry), run.k or 0, run.seed))


def entry_name(method: str, preset: str | None) -> str:
    """The name of a method's form in a suite."""
    names = {tuple(entry): name for name, entry in ENTRIES.items()}
    return names.get((method, preset or "default"), f"{method} {preset}")


def in_order(rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Rows of a store by method, k and seed, whichever run was finished first."""
    order = {name: place for place, name in enumerate(ENTRIES)}

    def place(row: Mapping[str, str]) -> tuple[int, int, int]:
        return order.get(row["method"], len(order)), int(row["k"] or 0), int(row["seed"] or 0)

    return sorted(rows, key=place)


def usual_k(benchmark: str, config: SuiteConfig) -> int:
    """The number of mechanisms of all lines but the Baseline and those that only vary it."""
    protocol = DIGITS_K if benchmark == DIGITS else PROTOCOLS[benchmark_named(benchmark).name].k
    return given(config.mechanisms.k, protocol)


def without_ablation(runs: Sequence[SuiteRun], k: int) -> list[SuiteRun]:
    """The runs less those of tcm with another number of mechanisms than usual."""
    return [run for run in runs if run.entry != "tcm" or run.k == k]


def compared_pair(runs: Sequence[SuiteRun], k: int) -> tuple[SuiteRun, SuiteRun] | None:
    """A rival and tcm on one task, of the lowest seed each; None where either is missing."""
    usual = without_ablation(runs, k)
    first = {run.entry: run for run in reversed(usual)}
    tcm = first.pop("tcm", None)
    rival = next((first[name] for name in (*RIVALS, *ENTRIES) if name in first), None)
    return (rival, tcm) if rival and tcm else None


def mechanisms_of(benchmark: str, out: Path, task: str, k: int) -> Path | None:
    """Finished mechanisms of the task's pair of domains: the usual number of them, else the most there are."""
    pair = DIGITS if benchmark == DIGITS else pair_name(benchmark_named(benchmark).task(task))
    numbers = {
        int(file.name.rpartition("k")[2]): file
        for file in (out / "mechanisms" / pair).glob(f"{MECHANISMS}-k*")
        if Run(file).finished
    }
    return numbers.get(k, numbers[max(numbers)]) if numbers else None
