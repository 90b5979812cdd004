"""A suite as a list of jobs: tasks x methods x seeds of a benchmark, by the protocol of the paper."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tcm.bench.config import DIGITS_KS, MECHANISMS, QUICK, SuiteConfig, field_of, with_default
from tcm.bench.tasks import DATA_FIELDS, SuiteTask, select_names, split_list, suite_benchmark, suite_tasks
from tcm.classifier.train_config import TrainConfig
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
    needs: str = ""  # the job of stage 1 that must finish first


def plan_jobs(benchmark: str, config: SuiteConfig, settings: Any, out: Path) -> list[Job]:
    """The jobs of a suite, in the order in which they run. Wrong settings are errors here, before anything runs.

    `settings` has the settings of all methods, as in `method_settings`.
    """
    for name in ("seeds", "devices"):
        if getattr(config, name) < 1:
            raise InputError(name, f"is {getattr(config, name)}; give 1 or more")
    if config.mechanisms.watch == 1 or config.mechanisms.watch < 0:
        raise InputError("mechanisms.watch", f"is {config.mechanisms.watch}; give 2 or more, or 0 for no distances")
    benchmark = suite_benchmark(benchmark)
    # Methods before tasks: reading the data may print many warnings.
    methods = select_names(config.methods, METHODS, "method")
    tasks = suite_tasks(benchmark, config)
    jobs: dict[str, Job] = {}
    for task in tasks:
        for seed in range(config.seed, config.seed + config.seeds):
            for name in methods:
                method: MethodConfig = getattr(settings, field_of(name))
                for k in numbers_of_mechanisms(name, task, config, method):
                    for job in jobs_of_run(name, method, task, seed, k, config, out):
                        jobs.setdefault(job.name, job)
    # Stage 2 first: a mistake in a setting of both stages is then reported by the field of stage 2.
    for job in sorted(jobs.values(), key=lambda job: not job.method):
        try:
            job.config.resolved()
        except InputError as error:
            raise InputError(f"{job.name}: {in_suite_fields(job, error)}") from error
    return list(jobs.values())


# The fields of a suite for those of stage 1. A suite has one learning rate for mechanisms and critics.
STAGE_1_FIELDS = {
    **{name: f"mechanisms.{name}" for name in ("steps", "batch")},
    "data.crop": "mechanisms.crop",
    "bank.lr": "mechanisms.lr",
    "bank.critic_lr": "mechanisms.lr",
    "bank.warmup": "mechanisms.warmup",
}


def in_suite_fields(job: Job, error: InputError) -> InputError:
    """An error about fields of a run's config, with the fields of the suite instead: `area` for `data.area`."""

    def rename(field: str) -> str:
        if not job.method and field in STAGE_1_FIELDS:
            return STAGE_1_FIELDS[field]
        first, _, rest = field.partition(".")
        if first == "data" and rest in DATA_FIELDS:
            return rest
        if field == "watch.images":
            return "mechanisms.watch"
        return f"method.{field_of(job.method)}.{rest}" if first == "method" else field

    return error.renamed(rename)


def numbers_of_mechanisms(
    name: str, task: SuiteTask, config: SuiteConfig, method: MethodConfig
) -> Sequence[int | None]:
    """The k of a method's runs: None without mechanisms; only the default method has several."""
    if not method.uses_counterfactuals:
        return [None]
    usual = method.number_of_mechanisms or with_default(config.k, task.protocol.k)
    if name != DEFAULT:
        return [usual]
    more = DIGITS_KS if config.ks is None and task.data.is_digits else map(parse_k, split_list(config.ks or ""))
    return list(dict.fromkeys([usual, *more]))


def jobs_of_run(
    method: str, settings: MethodConfig, task: SuiteTask, seed: int, k: int | None, config: SuiteConfig, out: Path
) -> Iterable[Job]:
    """The job of stage 2, and before it the job of stage 1 that it needs, if any."""
    needs, name = "", f"runs/{task.code}/{method}"
    if k is not None:
        stage_1 = mechanisms_job(task, k, config)
        yield stage_1
        needs, name = stage_1.name, f"{name}-k{k}"
    protocol = task.protocol
    authors = config.recipe == "authors"
    usual = settings.authors_steps if authors else protocol.steps_of.get(method, protocol.steps)
    steps = with_default(config.steps, default_steps(usual, config))
    evaluate_every = config.evaluate_every
    if evaluate_every is None and task.data.is_digits:
        evaluate_every = max(steps // 3, 1)  # an evaluation takes long compared with so few steps
    yield Job(
        f"{name}-s{seed}",
        TrainConfig(
            method=settings,
            data=task.data,
            steps=steps,
            batch=with_default(config.batch, settings.authors_batch if authors else 32),
            seed=seed,
            save_every=config.save_every,
            evaluate_every=evaluate_every,
            held_out=config.held_out,
            backbone=config.backbone,
            device=config.device,
            devices=config.devices,
            compile=config.compile,
            mechanisms=out / needs if needs else None,
        ),
        method,
        needs,
    )


def mechanisms_job(task: SuiteTask, k: int, config: SuiteConfig) -> Job:
    """Stage 1 of a pair of domains, in the paper's form for all methods: rows of a table differ only in stage 2."""
    chosen = config.mechanisms
    bank = bank_config(MECHANISMS, small=task.data.is_small)
    if chosen.lr is not None:
        bank = dataclasses.replace(bank, lr=chosen.lr, critic_lr=chosen.lr)
    steps = with_default(chosen.steps, default_steps(task.mechanism_steps, config))
    # At most half of the steps, so that a short run has time for the competition.
    bank = dataclasses.replace(bank, warmup=min(with_default(chosen.warmup, bank.warmup), steps // 2))
    data = dataclasses.replace(task.pair_data, area=None)
    if chosen.crop is not None:
        data = dataclasses.replace(data, crop=chosen.crop)
    return Job(
        f"mechanisms/{task.pair}/{MECHANISMS}-k{k}",
        MechanismsConfig(
            data=data,
            steps=steps,
            batch=with_default(chosen.batch, task.protocol.batch),
            k=k,
            form=MECHANISMS,
            bank=bank,
            save_every=config.save_every,
            watch=WatchConfig(chosen.watch),
            backbone=config.backbone if chosen.watch else BackboneConfig(),
            device=config.device,
            devices=config.devices,
            compile=config.compile,
        ),
    )


def default_steps(steps: int, config: SuiteConfig) -> int:
    """The steps of the protocol, or the few of a quick suite."""
    return max(steps // QUICK, 1) if config.quick else steps


def parse_k(text: str) -> int:
    """A number of mechanisms in `ks`."""
    if not text.isdecimal() or int(text) < 1:
        raise InputError("ks", f'has "{printable(text)}"; give integers from 1 up, separated by commas')
    return int(text)
