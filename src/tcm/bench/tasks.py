"""The tasks of a suite: from the names that the user gives to the data of each task."""

import dataclasses
import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tcm.bench.config import (
    DIGITS,
    DIGITS_K,
    DIGITS_MECHANISM_STEPS,
    DIGITS_STEPS,
    PROTOCOLS,
    Protocol,
    SuiteConfig,
    with_default,
)
from tcm.data.benchmarks import BENCHMARKS, Benchmark, Transfer, benchmark_named
from tcm.data.domains import plain_name
from tcm.data.layouts import benchmark_data
from tcm.data.task import DataConfig
from tcm.errors import InputError, printable

DATA_FIELDS = ("size", "crop", "area", "target_labels", "on_bad_image", "cache")  # of DataConfig and SuiteConfig alike


class SuiteTask(NamedTuple):
    """A task of the suite, and the pair of domains whose mechanisms it uses."""

    code: str  # A2C
    data: DataConfig
    pair: str  # A-C
    pair_data: DataConfig
    protocol: Protocol
    mechanism_steps: int


def suite_benchmark(name: str) -> str:
    """The name of a benchmark as suites spell it; `name` may be in any spelling."""
    return find_name(name, [*(published.name.lower() for published in BENCHMARKS), DIGITS], "benchmark")


def suite_tasks(benchmark: str, config: SuiteConfig) -> list[SuiteTask]:
    """The selected tasks, with their data below the root of the benchmark."""
    if benchmark == DIGITS:
        return [digits_task(config)]
    if config.root is None:
        raise InputError(f"{benchmark} needs `root`; give the folder that holds its domains")
    published = benchmark_named(benchmark)
    protocol = PROTOCOLS[published.name]
    tasks = []
    for transfer in selected_transfers(published, config):
        pair = mechanisms_direction(transfer)
        data = {
            direction: with_image_settings(benchmark_data(published.name, config.root, direction.code), config)
            for direction in {transfer, pair}
        }
        images = max(pair.source.images, pair.target.images)
        steps = protocol.epochs * images // max(with_default(config.mechanisms.batch, protocol.batch), 1)
        pair_name = f"{pair.source.short}-{pair.target.short}"
        tasks.append(SuiteTask(transfer.code.replace(">", "2"), data[transfer], pair_name, data[pair], protocol, steps))
    return tasks


def digits_task(config: SuiteConfig) -> SuiteTask:
    """The only task of the built-in digits."""
    if config.root:
        raise InputError("the digits are built in and need no `root`; leave it out")
    select_names(config.tasks, [DIGITS], "task")
    data = with_image_settings(DataConfig(benchmark=DIGITS), config)
    protocol = Protocol(DIGITS_STEPS, 0, DIGITS_K, 8)
    return SuiteTask(DIGITS, data, DIGITS, data, protocol, DIGITS_MECHANISM_STEPS)


def selected_transfers(published: Benchmark, config: SuiteConfig) -> list[Transfer]:
    """The transfers that `tasks` selects, in that order and each once."""
    codes = split_list(config.tasks)
    selected = published.tasks if "all" in codes else [published.task(code) for code in codes]
    if not selected:
        known = ", ".join(transfer.code for transfer in published.tasks)
        raise InputError("tasks", f'is "{printable(config.tasks)}"; name some of {known}')
    return list(dict.fromkeys(selected))


def mechanisms_direction(transfer: Transfer) -> Transfer:
    """The direction in which the mechanisms of a pair are trained: the same for a task and its reverse."""
    # In the order of their names: VisDA-2017 has the task Synthetic>Real, but not its reverse.
    source, target = sorted((transfer.source, transfer.target), key=lambda domain: domain.name)
    return Transfer(source, target)


def with_image_settings(data: DataConfig, config: SuiteConfig) -> DataConfig:
    """The data with the suite's settings for images."""
    return dataclasses.replace(data, **{name: getattr(config, name) for name in DATA_FIELDS})


def split_list(text: str) -> list[str]:
    """The items of a text that is separated by commas."""
    return [item.strip() for item in text.split(",") if item.strip()]


def select_names(text: str, known: Iterable[str], kind: str) -> list[str]:
    """The names in the text, in that order; all known names if one of them is "all"."""
    names, items = list(known), split_list(text)
    if "all" in items:
        return names
    if not items:
        raise InputError(f"{kind}s", f'is "{printable(text)}"; name some of {", ".join(names)}')
    return list(dict.fromkeys(find_name(item, names, kind) for item in items))


def find_name(name: str, known: Sequence[str], kind: str) -> str:
    """The known name that equals `name` in any spelling; if there is none, an error with the nearest one."""
    plain = {plain_name(one): one for one in known}
    if found := plain.get(plain_name(name)):
        return found
    near = plain[difflib.get_close_matches(plain_name(name), plain, n=1, cutoff=0)[0]]
    raise InputError(f'there is no {kind} "{printable(name)}"; the nearest is {near}; there are {", ".join(known)}')
