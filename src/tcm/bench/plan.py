"""A suite as a list of jobs: tasks x methods x seeds of a benchmark, with the protocol of the paper."""

import dataclasses
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tcm.bench.config import (
    DIGITS,
    DIGITS_K,
    DIGITS_KS,
    DIGITS_MECHANISM_STEPS,
    DIGITS_STEPS,
    MECHANISMS,
    PROTOCOLS,
    QUICK,
    Protocol,
    SuiteConfig,
    field_of,
)
from tcm.classifier.train import TrainConfig
from tcm.data.benchmarks import BENCHMARKS, Transfer, benchmark_named
from tcm.data.domains import plain_name
from tcm.data.layouts import benchmark_data
from tcm.data.task import DataConfig
from tcm.errors import InputError, printable
from tcm.mechanisms.distance import WatchConfig
from tcm.mechanisms.train import MechanismsConfig, bank_config
from tcm.methods import DEFAULT, METHODS, MethodConfig
from tcm.nn.backbone import BackboneConfig


class Job(NamedTuple):
    """One run of the suite."""

    name: str  # its folder below the suite's
    config: MechanismsConfig | TrainConfig[Any]
    method: str = ""  # of stage 2
    needs: str = ""  # the name of stage 1's job that must be finished before


def plan_jobs(benchmark: str, config: SuiteConfig, settings: Any, out: Path) -> list[Job]:
    """The jobs of a suite in the order in which they are to run; mistakes are found here, before anything runs.

    `settings` is what `method_settings` gives, perhaps with other values.
    """
    if config.seeds < 1:
        raise InputError("seeds", f"is {config.seeds}; give 1 or more")
    if config.mechanisms.watch == 1 or config.mechanisms.watch < 0:
        raise InputError("mechanisms.watch", f"is {config.mechanisms.watch}; give 2 or more, or 0 for no distances")
    benchmark = suite_benchmark(benchmark)
    # Before the data, of which there may be much to warn.
    methods = chosen(config.methods, METHODS, "method")
    tasks = suite_tasks(benchmark, config)
    jobs: dict[str, Job] = {}
    for task in tasks:
        for seed in range(config.seeds):
            for name in methods:
                method: MethodConfig = getattr(settings, field_of(name))
                for k in numbers_of_mechanisms(name, task, config, method):
                    for job in planned(name, method, task, seed, k, config, out):
                        jobs.setdefault(job.name, job)
    # Stage 2 first: a mistake in what both stages share is then reported in the fields of stage 2.
    for job in sorted(jobs.values(), key=lambda job: not job.method):
        try:
            job.config.resolved()
        except InputError as error:
            raise InputError(f"{job.name}: {in_suite_fields(job, error)}") from error
    return list(jobs.values())


class SuiteTask(NamedTuple):
    """A task of the suite and the pair of domains whose mechanisms serve it."""

    code: str  # A2C
    data: DataConfig
    pair: str  # A-C
    pair_data: DataConfig
    protocol: Protocol
    mechanism_steps: int


def suite_benchmark(asked: str) -> str:
    """The name of a benchmark in any spelling, as the options and the rest of a suite spell it."""
    return named(asked, [*(published.name.lower() for published in BENCHMARKS), DIGITS], "benchmark")


def suite_tasks(benchmark: str, config: SuiteConfig) -> list[SuiteTask]:
    """The tasks asked for, with their data as the benchmark's root holds it."""
    if benchmark == DIGITS:
        if config.root:
            raise InputError("the digits are built in and need no `root`; leave it out")
        chosen(config.tasks, [DIGITS], "task")
        data = with_options(DataConfig(benchmark=DIGITS), config)
        protocol = Protocol(DIGITS_STEPS, 0, DIGITS_K, 8)
        return [SuiteTask("digits", data, "digits", data, protocol, DIGITS_MECHANISM_STEPS)]
    if config.root is None:
        raise InputError(f"{benchmark} needs `root`; give the folder that holds its domains")
    published = benchmark_named(benchmark)
    codes = words(config.tasks)
    asked = published.tasks if "all" in codes else [published.task(code) for code in codes]
    if not asked:
        there = ", ".join(transfer.code for transfer in published.tasks)
        raise InputError("tasks", f'is "{printable(config.tasks)}"; name some of {there}')
    protocol = PROTOCOLS[published.name]
    found = []
    for transfer in dict.fromkeys(asked):
        data = {
            way: with_options(benchmark_data(published.name, config.root, way.code), config)
            for way in {transfer, learned(transfer)}
        }
        pair = learned(transfer)
        images = max(pair.source.images, pair.target.images)
        steps = protocol.epochs * images // max(given(config.mechanisms.batch, protocol.batch), 1)
        code = transfer.code.replace(">", "2")
        found.append(SuiteTask(code, data[transfer], pair_name(transfer), data[pair], protocol, steps))
    return found


def learned(transfer: Transfer) -> Transfer:
    """The direction in which a pair's mechanisms are learned: the same for a task and its reverse."""
    # By name VisDA-2017's only task is its own: Real>Synthetic is none.
    source, target = sorted((transfer.source, transfer.target), key=lambda domain: domain.name)
    return Transfer(source, target)


def pair_name(transfer: Transfer) -> str:
    """The folder of a pair's mechanisms."""
    pair = learned(transfer)
    return f"{pair.source.short}-{pair.target.short}"


# Fields of DataConfig that a suite has by the same names.
DATA_FIELDS = ("size", "crop", "area", "target_labels", "on_bad_image", "cache")
# Fields of stage 1 by their names in a suite. A suite has one learning rate for mechanisms and critics.
STAGE_1_FIELDS = {
    **{name: f"mechanisms.{name}" for name in ("k", "steps", "batch")},
    "data.crop": "mechanisms.crop",
    "bank.lr": "mechanisms.lr",
    "bank.critic_lr": "mechanisms.lr",
    "bank.warmup": "mechanisms.warmup",
}


def with_options(data: DataConfig, config: SuiteConfig) -> DataConfig:
    """The data with what the suite says of images."""
    return dataclasses.replace(data, **{name: getattr(config, name) for name in DATA_FIELDS})


def in_suite_fields(job: Job, error: InputError) -> InputError:
    """A mistake in a run's config, in the fields of the suite: `area` for the run's `data.area`."""

    def rename(field: str) -> str:
        if not job.method and field in STAGE_1_FIELDS:
            return STAGE_1_FIELDS[field]
        first, _, rest = field.partition(".")
        if first == "data" and rest in DATA_FIELDS:
            return rest
        if first == "watch":
            return rest
        return f"method.{field_of(job.method)}.{rest}" if first == "method" else field

    return error.renamed(rename)


def numbers_of_mechanisms(
    name: str, task: SuiteTask, config: SuiteConfig, method: MethodConfig
) -> Sequence[int | None]:
    """The k of a method's runs: one, None where it uses no mechanisms, several for the default where asked for."""
    if not method.uses_counterfactuals:
        return [None]
    usual = method.number_of_mechanisms or given(config.mechanisms.k, task.protocol.k)
    if name != DEFAULT:
        return [usual]
    more = DIGITS_KS if config.ks is None and task.data.is_digits else map(whole, words(config.ks or ""))
    return list(dict.fromkeys([usual, *more]))


def planned(
    method: str, settings: MethodConfig, task: SuiteTask, seed: int, k: int | None, config: SuiteConfig, out: Path
) -> Iterable[Job]:
    """The job of stage 2, after that of stage 1 if it needs one."""
    needs, name = "", f"runs/{task.code}/{method}"
    if k is not None:
        first = mechanisms_job(task, k, config)
        yield first
        needs, name = first.name, f"{name}-k{k}"
    steps = given(config.steps, shorter(task.protocol.steps, config))
    # Scoring a model takes long beside so few steps.
    rarely = max(steps // 3, 1) if task.data.is_digits else None
    evaluate_every = rarely if config.evaluate_every is None else config.evaluate_every
    yield Job(
        f"{name}-s{seed}",
        TrainConfig(
            method=settings,
            data=task.data,
            steps=steps,
            batch=config.batch,
            seed=seed,
            evaluate_every=evaluate_every,
            held_out=config.held_out,
            backbone=config.backbone,
            device=config.device,
            compile=config.compile,
            mechanisms=out / needs if needs else None,
        ),
        method,
        needs,
    )


def mechanisms_job(task: SuiteTask, k: int, config: SuiteConfig) -> Job:
    """Stage 1 of a pair of domains: in the paper's form for all, so that lines of a table differ in stage 2 alone."""
    asked = config.mechanisms
    bank = bank_config(MECHANISMS, small=task.data.is_small)
    if asked.lr is not None:
        bank = dataclasses.replace(bank, lr=asked.lr, critic_lr=asked.lr)
    steps = given(asked.steps, shorter(task.mechanism_steps, config))
    warmup = bank.warmup if asked.warmup is None else asked.warmup
    # A warm-up longer than half of a short run would leave no time to compete.
    bank = dataclasses.replace(bank, warmup=min(warmup, steps // 2))
    data = dataclasses.replace(task.pair_data, area=None)
    if asked.crop is not None:
        data = dataclasses.replace(data, crop=asked.crop)
    return Job(
        f"mechanisms/{task.pair}/{MECHANISMS}-k{k}",
        MechanismsConfig(
            data=data,
            steps=steps,
            batch=given(asked.batch, task.protocol.batch),
            k=k,
            form=MECHANISMS,
            bank=bank,
            watch=WatchConfig(asked.watch, config.backbone if asked.watch else BackboneConfig()),
            device=config.device,
            compile=config.compile,
        ),
    )


def given(value: int | None, default: int) -> int:
    """The value of an option, which may be a wrong 0, or its default."""
    return default if value is None else value


def shorter(steps: int, config: SuiteConfig) -> int:
    """The steps of the protocol, or of a quick look at it."""
    return max(steps // QUICK, 1) if config.quick else steps


def words(text: str) -> list[str]:
    """The parts between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def whole(text: str) -> int:
    """The number of mechanisms that a word of `ks` gives."""
    if not text.isdecimal() or int(text) < 1:
        raise InputError("ks", f'has "{printable(text)}"; give integers from 1 up, with commas between them')
    return int(text)


def chosen(asked: str, there: Iterable[str], kind: str) -> list[str]:
    """The names asked for, in that order; all of them for "all"."""
    names = list(there)
    if "all" in words(asked):
        return names
    if not words(asked):
        raise InputError(f"{kind}s", f'is "{printable(asked)}"; name some of {", ".join(names)}')
    return list(dict.fromkeys(named(word, names, kind) for word in words(asked)))


def named(asked: str, names: Sequence[str], kind: str) -> str:
    """The one of the names that is asked for, in any spelling; an error that tells the nearest if there is none."""
    plain = {plain_name(name): name for name in names}
    if found := plain.get(plain_name(asked)):
        return found
    near = plain[difflib.get_close_matches(plain_name(asked), plain, n=1, cutoff=0)[0]]
    raise InputError(f'there is no {kind} "{printable(asked)}"; the nearest is {near}; there are {", ".join(names)}')
