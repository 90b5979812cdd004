"""A suite as a list of jobs: tasks x methods x seeds of a benchmark, with the protocol of the paper."""

import dataclasses
import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tcm.data.benchmarks import BENCHMARKS, Transfer, benchmark_named
from tcm.data.domains import plain_name
from tcm.data.layouts import benchmark_data
from tcm.data.task import DataConfig
from tcm.errors import InputError, shown
from tcm.experiment import TrainConfig
from tcm.mechanisms.discovery import DiscoveryConfig, preset_bank
from tcm.mechanisms.distance import WatchConfig
from tcm.methods import METHODS, MethodConfig, Preset, preset_method
from tcm.methods.alignment import AlignmentConfig
from tcm.methods.baseline import BaselineConfig
from tcm.methods.method import Recipe, uses_counterfactuals
from tcm.nn.backbone import BackboneConfig
from tcm.settings import Device

DIGITS = "digits"
MECHANISMS = "paper"  # the form of stage 1
QUICK = 20  # how many times shorter a quick look is


class Protocol(NamedTuple):
    """How the paper trains on a benchmark (Section 4.1)."""

    steps: int  # of stage 2
    epochs: int  # of stage 1, over the larger domain
    k: int
    batch: int  # of stage 1: the authors' scripts


# Office-31 is not in the paper: it is trained as Office-Home is.
PROTOCOLS = {
    "Office-Home": Protocol(10_000, 200, 4, 4),
    "ImageCLEF-DA": Protocol(3_000, 200, 5, 8),
    "VisDA-2017": Protocol(10_000, 40, 4, 8),
    "Office-31": Protocol(10_000, 200, 4, 4),
}
DIGITS_STEPS, DIGITS_MECHANISM_STEPS, DIGITS_K = 180, 200, 4
DIGITS_KS = (1, 2, 3, 5, 7, 10)  # of Table 4
# The usual discriminators drive the small network's unbounded features to infinity, on photographs too.
SMALL_BASELINE = BaselineConfig(
    recipe=Recipe(), features="bottleneck", alignment=AlignmentConfig("proxies", hidden=128)
)


class Entry(NamedTuple):
    """A line of a table: a method in one of its forms."""

    method: str
    preset: Preset = "default"


ENTRIES = {name: Entry(name) for name in METHODS} | {
    "tcm-paper": Entry("tcm", "paper"),
    "tcm-release": Entry("tcm", "release"),
    "tcm-control": Entry("tcm", "control"),
}


@dataclass(frozen=True, kw_only=True)
class SuiteMechanisms:
    """Stage 1 of the suite: one run for a pair of domains serves both directions, all methods and all seeds."""

    steps: int | None = None
    """Training steps. Default: the paper's epochs; digits 200."""
    batch: int | None = None
    """Images of each domain in a step. Default: that of the authors' scripts."""
    k: int | None = None
    """Number of mechanisms. Default: the paper's."""
    crop: int | None = None
    """Side of the square that training cuts out. Default: as in stage 2."""
    lr: float | None = None
    """Adam's learning rate, of mechanisms and critics. Default: that of the form."""
    warmup: int | None = None
    """Steps before the competition starts. Default: that of the form."""
    watch: int = 0
    """Images of each domain on which every evaluation measures Frechet distances, in the features of --backbone or, of
    digits, their own reader. They stand in metrics.jsonl. 0: none."""


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """What to run."""

    root: Path | None = None
    """Folder of the benchmark. The digits need none."""
    tasks: str = "all"
    """Tasks in any usual spelling, with commas between them: A2C,R2C. The digits are one task."""
    methods: str = "all"
    """Methods with commas between them. tcm-paper, tcm-release and tcm-control are TCM's other presets."""
    seeds: int = 3
    """Runs of each task and method: seeds 0, 1, ..."""
    ks: str | None = None
    """More numbers of mechanisms for tcm, with commas between them. Default: none; digits 1,2,3,5,7,10."""
    quick: bool = False
    """A look: a twentieth of all steps."""
    steps: int | None = None
    """Training steps of stage 2. Default: the paper's; digits 180."""
    batch: int = 32
    """Images of each domain in a step of stage 2."""
    evaluate_every: int | None = None
    """Steps between evaluations. Default: a tenth of the run; digits a third."""
    held_out: float = 0.0
    """Share of each class's source images that training never sees, for the selection scores that look at them."""
    size: int | None = None
    """Side to which images are resized for the store. Default: 256, digits 32."""
    crop: int | None = None
    """Side of the square that is cut out; below 64 networks are small. Default: 7/8 of the size, digits all of it."""
    area: float | None = None
    """Cut training images of stage 2 out as parts of random size, at least this share of the area, resized."""
    on_bad_image: Literal["stop", "skip"] = "stop"
    """What to do with an image that cannot be read."""
    cache: Path | None = None
    """Where packed images are kept. Default: tcm in the user's cache folder."""
    device: Device = "auto"
    """auto: the GPU if there is one."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the networks. auto: on a GPU, when a run is long enough to repay the minute it takes."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    mechanisms: SuiteMechanisms = field(default_factory=SuiteMechanisms)


class Job(NamedTuple):
    """One run of the suite."""

    name: str  # its folder below the suite's
    config: DiscoveryConfig | TrainConfig[Any]
    method: str = ""  # of stage 2
    needs: str = ""  # the name of stage 1's job that must be finished before


def method_settings(benchmark: str, size: int | None = None, crop: int | None = None) -> Any:
    """A dataclass with the config of every entry on images of these sides, for the options of --method."""
    small = DataConfig(DIGITS if benchmark == DIGITS else None, size=size, crop=crop).is_small
    starts = {name: preset_method(entry.method, entry.preset, small) for name, entry in ENTRIES.items()}
    if small:
        starts["baseline"] = SMALL_BASELINE
    fields: list[Any] = [
        (name.replace("-", "_"), type(start), field(default_factory=lambda start=start: start))
        for name, start in starts.items()
    ]
    return dataclasses.make_dataclass("MethodSettings", fields, frozen=True, kw_only=True)()


def suite_jobs(benchmark: str, config: SuiteConfig, settings: Any, out: Path) -> list[Job]:
    """The jobs of a suite in the order in which they are to run; mistakes are found here, before anything runs.

    `settings` is what `method_settings` gives, perhaps with other values.
    """
    if config.seeds < 1:
        raise InputError(f"--seeds is {config.seeds}; give 1 or more")
    if config.mechanisms.watch == 1 or config.mechanisms.watch < 0:
        raise InputError(f"--mechanisms.watch is {config.mechanisms.watch}; give 2 or more, or 0 for no distances")
    benchmark = suite_benchmark(benchmark)
    # Before the data, of which there may be much to warn.
    entries = chosen(config.methods, ENTRIES, "method")
    tasks = suite_tasks(benchmark, config)
    jobs: dict[str, Job] = {}
    for task in tasks:
        for seed in range(config.seeds):
            for entry in entries:
                method: MethodConfig = getattr(settings, entry.replace("-", "_"))
                for k in numbers_of_mechanisms(entry, task, config, method):
                    for job in planned(entry, method, task, seed, k, config, out):
                        jobs.setdefault(job.name, job)
    # Stage 2 first: what stage 1 takes over from it is told by the option that was given.
    for job in sorted(jobs.values(), key=lambda job: not job.method):
        try:
            job.config.resolved()
        except InputError as error:
            raise InputError(f"{job.name}: {in_suite_options(job, str(error))}") from error
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
            raise InputError("tcm bench digits needs no --root: the digits are built in; leave it out")
        chosen(config.tasks, [DIGITS], "task")
        data = with_options(DataConfig(benchmark=DIGITS), config)
        protocol = Protocol(DIGITS_STEPS, 0, DIGITS_K, 8)
        return [SuiteTask("digits", data, "digits", data, protocol, DIGITS_MECHANISM_STEPS)]
    if config.root is None:
        raise InputError(f"tcm bench {benchmark} needs --root: the folder that holds its domains")
    published = benchmark_named(benchmark)
    asked = [published.task(code) for code in words(config.tasks)] if config.tasks != "all" else published.tasks
    if not asked:
        codes = ", ".join(transfer.code for transfer in published.tasks)
        raise InputError(f'--tasks is "{shown(config.tasks)}"; name some of {codes}')
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


# Options of the data that a suite has by the same names, without their prefix.
DATA_OPTIONS = ("size", "crop", "area", "on_bad_image", "cache")
# Options of stage 1 that a suite has by the same names, with another prefix.
STAGE_1_OPTIONS = re.compile(r"--(?:bank\.|data\.(?=crop))?(k|steps|batch|crop|lr|warmup)\b")


def with_options(data: DataConfig, config: SuiteConfig) -> DataConfig:
    """The data with what the suite says of images."""
    return dataclasses.replace(data, **{name: getattr(config, name) for name in DATA_OPTIONS})


def in_suite_options(job: Job, message: str) -> str:
    """What a run says of its options, in those of tcm bench: --area where the run's is --data.area."""
    if isinstance(job.config, DiscoveryConfig):
        message = STAGE_1_OPTIONS.sub(r"--mechanisms.\1", message).replace("--watch.backbone", "--backbone")
    else:
        entry = next(name for name, entry in ENTRIES.items() if entry == (job.method, job.config.preset))
        message = message.replace("--method.", f"--method.{entry}.")
    for name in DATA_OPTIONS:
        option = name.replace("_", "-")
        message = message.replace(f"--data.{option}", f"--{option}")
    return message


def numbers_of_mechanisms(
    entry: str, task: SuiteTask, config: SuiteConfig, method: MethodConfig
) -> Sequence[int | None]:
    """The k of an entry's runs: one, none where it uses no mechanisms, several for tcm where they are asked for."""
    if not uses_counterfactuals(method):
        return [None]
    if entry == "baseline":
        return [1]
    usual = given(config.mechanisms.k, task.protocol.k)
    if entry != "tcm":
        return [usual]
    more = DIGITS_KS if config.ks is None and task.data.is_digits else map(whole, words(config.ks or ""))
    return list(dict.fromkeys([usual, *more]))


def planned(
    entry: str, settings: MethodConfig, task: SuiteTask, seed: int, k: int | None, config: SuiteConfig, out: Path
) -> Iterable[Job]:
    """The job of stage 2, after that of stage 1 if it needs one."""
    method, preset = ENTRIES[entry]
    needs, name = "", f"runs/{task.code}/{entry}"
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
            preset=preset,
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
    bank = preset_bank(MECHANISMS, small=task.data.is_small)
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
        DiscoveryConfig(
            data=data,
            steps=steps,
            batch=given(asked.batch, task.protocol.batch),
            k=k,
            preset=MECHANISMS,
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
    """The number of mechanisms that a word of --ks gives."""
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f'--ks has "{shown(text)}"; give whole numbers from 1 up, with commas between them')
    return int(text)


def chosen(asked: str, there: Iterable[str], kind: str) -> list[str]:
    """The names asked for, in that order; all of them for "all"."""
    names = list(there)
    if asked == "all":
        return names
    if not words(asked):
        raise InputError(f'--{kind}s is "{shown(asked)}"; name some of {", ".join(names)}')
    return list(dict.fromkeys(named(word, names, kind) for word in words(asked)))


def named(asked: str, names: Sequence[str], kind: str) -> str:
    """The one of the names that is asked for, in any spelling; an error that tells the nearest if there is none."""
    plain = {plain_name(name): name for name in names}
    if found := plain.get(plain_name(asked)):
        return found
    near = plain[difflib.get_close_matches(plain_name(asked), plain, n=1, cutoff=0)[0]]
    raise InputError(f'there is no {kind} "{shown(asked)}"; the nearest is {near}; there are {", ".join(names)}')
