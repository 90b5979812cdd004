"""The finished runs in a suite's folder, as their configs describe them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tcm.bench.config import DIGITS, DIGITS_K, PROTOCOLS, SuiteConfig, with_default
from tcm.data.benchmarks import benchmark_named
from tcm.methods import DEFAULT, METHODS
from tcm.results.store import TASKS, task_of
from tcm.training.run_folder import Run, read_json

# Figures compare the default with the first of these; the paper has GVB-GD and the Baseline.
RIVALS = ("gvb", "baseline", "cdan-e", "dann", "erm")


class SuiteRun(NamedTuple):
    """A finished run of stage 2."""

    folder: Path
    task: str  # A2C
    method: str
    k: int | None
    seed: int
    mechanisms: Path | None  # the folder of its stage 1


def finished_runs(benchmark: str, out: Path) -> list[SuiteRun]:
    """The finished runs of a suite: by task and method in the order of the tables, then by k and seed."""
    folders = [file.parent for file in sorted((out / "runs").glob("*/*/config.json"))]
    runs = [suite_run(benchmark, out, folder) for folder in folders if Run(folder).finished]
    tasks = list(TASKS.get(benchmark_name(benchmark), ()))

    def place(run: SuiteRun) -> tuple[int, int, int, int]:
        return position(run.task.replace("2", ">"), tasks), position(run.method, [*METHODS]), run.k or 0, run.seed

    return sorted(runs, key=place)


def suite_run(benchmark: str, out: Path, folder: Path) -> SuiteRun:
    """The run in a folder, as its files describe it."""
    config, found = Run(folder).config(), read_json(folder / "evaluation.json")
    task = task_of(benchmark_name(benchmark), found["source"]["name"], found["target"]["name"])
    return SuiteRun(
        folder,
        DIGITS if benchmark == DIGITS else task.replace(">", "2"),
        config["method_name"],
        Run(folder).about_model().get("k"),
        config["seed"],
        # The suite's folder may have been moved since. Stage 1 is below it, in mechanisms/PAIR/FORM.
        out.joinpath(*Path(config["mechanisms"]).parts[-3:]) if config.get("mechanisms") else None,
    )


def benchmark_name(benchmark: str) -> str:
    """The name of the suite's benchmark as in rows of results."""
    return DIGITS if benchmark == DIGITS else benchmark_named(benchmark).name


def position(name: str, order: Sequence[str]) -> int:
    """The index of a name in an order; unknown names come last."""
    return order.index(name) if name in order else len(order)


def in_order(rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Rows of a store, sorted by method, k and seed."""
    order = list(METHODS)
    return sorted(rows, key=lambda row: (position(row["method"], order), int(row["k"] or 0), int(row["seed"] or 0)))


def usual_k(benchmark: str, config: SuiteConfig) -> int:
    """The number of mechanisms of a suite: of all methods but the Baseline, and without the further `ks`."""
    protocol = DIGITS_K if benchmark == DIGITS else PROTOCOLS[benchmark_named(benchmark).name].k
    return with_default(config.k, protocol)


def without_ablation(runs: Sequence[SuiteRun], k: int) -> list[SuiteRun]:
    """All runs except those of the default method with another number of mechanisms than k."""
    return [run for run in runs if run.method != DEFAULT or run.k == k]


def compared_runs(runs: Sequence[SuiteRun], k: int, rivals: int = 1) -> list[SuiteRun]:
    """Runs of at most so many rivals and one of the default method, each with the lowest seed; [] without such runs."""
    first = {run.method: run for run in reversed(without_ablation(runs, k))}
    default = first.pop(DEFAULT, None)
    found = [first[name] for name in dict.fromkeys((*RIVALS, *METHODS)) if name in first][:rivals]
    return [*found, default] if found and default else []


def mechanisms_of(runs: Sequence[SuiteRun], task: str, k: int) -> Path | None:
    """The finished run of stage 1 of a task, with k mechanisms or else with the most; None if there is none."""
    numbers = {run.k: run.mechanisms for run in runs if run.task == task and run.mechanisms and run.k}
    finished = {number: where for number, where in numbers.items() if Run(where).finished}
    return finished.get(k, finished[max(finished)]) if finished else None
