"""What a suite will cost before it starts: runs, hours of the device, and disk."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tcm.bench.config import DIGITS
from tcm.bench.jobs import is_finished
from tcm.bench.plan import Job
from tcm.bench.rates import Rate, kind_of
from tcm.classifier.train_config import TrainConfig
from tcm.config import to_json
from tcm.data.benchmarks import benchmark_named
from tcm.data.task import DataConfig, load_task, read_domains
from tcm.mechanisms.load import build_inverse
from tcm.mechanisms.train import MechanismsConfig
from tcm.methods.method import Problem
from tcm.pipeline.probe import counted_bytes
from tcm.progress import format_duration

DEVICES = (1, 8, 64)  # the numbers of devices for which the time of the whole suite is estimated
GIGABYTE = 1e9


class KindCost(NamedTuple):
    """The cost of all runs of one method, or of stage 1 with one k."""

    kind: str
    runs: int
    finished: int
    steps: int  # of all runs that are not finished
    seconds: float  # of these steps and, in stage 1, of writing counterfactuals
    rate: Rate


class DiskUse(NamedTuple):
    """Bytes on disk by what they are for, for all runs of the suite."""

    images: float  # both domains of every pair, packed once
    counterfactuals: float
    models: float  # models and checkpoints
    largest: float  # one checkpoint more, while it is written


class Forecast(NamedTuple):
    """What a suite will cost."""

    kinds: list[KindCost]
    disk: DiskUse
    longest: float  # seconds of the longest chain: stage 1 and then a run that needs it

    @property
    def seconds(self) -> float:
        """Seconds of all runs one after the other."""
        return sum(cost.seconds for cost in self.kinds)

    def seconds_on(self, devices: int) -> float:
        """The least seconds on so many devices with one run each at a time."""
        return max(self.seconds / devices, self.longest)


def forecast(benchmark: str, jobs: Sequence[Job], out: Path, rates: Mapping[str, Rate]) -> Forecast:
    """The cost of the jobs that are not finished, at these rates by the kind of job; disk for all jobs."""
    seconds = {job.name: 0.0 if is_finished(job, out) else seconds_of(job, rates[kind_of(job)]) for job in jobs}
    kinds = []
    for kind in dict.fromkeys(map(kind_of, jobs)):
        alike = [job for job in jobs if kind_of(job) == kind]
        left = [job for job in alike if not is_finished(job, out)]
        steps = sum(job.config.steps or 0 for job in left)
        total = sum(seconds[job.name] for job in alike)
        kinds.append(KindCost(kind, len(alike), len(alike) - len(left), steps, total, rates[kind]))
    longest = max(seconds[job.name] + seconds.get(job.needs, 0.0) for job in jobs)
    return Forecast(kinds, disk_use(benchmark, jobs), longest)


def seconds_of(job: Job, rate: Rate) -> float:
    """The seconds of a job: its training steps and, in stage 1, its counterfactuals."""
    steps = job.config.steps
    assert steps is not None
    made = 0 if job.method else sum(domain_sizes(job.config.resolved().data).values())
    return steps * rate.seconds + made * rate.seconds_per_image


def domain_sizes(data: DataConfig) -> dict[str, int]:
    """The number of images of both domains, by a name that tells domains apart."""
    if data.is_digits:
        return {store.name: len(store) for store in load_task(data)}
    return {str(domain.root) + domain.name: len(domain.paths) for domain in read_domains(data)}


def disk_use(benchmark: str, jobs: Sequence[Job]) -> DiskUse:
    """The disk that a whole suite takes."""
    classes = 10 if benchmark == DIGITS else benchmark_named(benchmark).classes
    domains: dict[str, float] = {}
    counterfactuals, sizes, by_name = 0.0, dict[str, float](), {job.name: job for job in jobs}
    for job in jobs:
        data = job.config.resolved().data
        assert data.size is not None
        found = domain_sizes(data)
        image = 3.0 * data.size**2
        domains |= {name: count * image for name, count in found.items()}
        if isinstance(job.config, MechanismsConfig):
            counterfactuals += job.config.initial_k * sum(found.values()) * image
        kind = kind_of(job)
        if kind not in sizes:
            sizes[kind] = checkpoint_bytes(job, by_name.get(job.needs), classes)
    models = sum(sizes[kind_of(job)] for job in jobs)
    return DiskUse(sum(domains.values()), counterfactuals, models, max(sizes.values()))


def checkpoint_bytes(job: Job, stage_1: Job | None, classes: int) -> float:
    """The bytes of a run's model and checkpoint, with the moments of its optimizers."""
    config = job.config.resolved()
    if isinstance(config, MechanismsConfig):
        steps = config.schedule.steps
        return 4 * counted_bytes(config.bank.build(config.initial_k, config.data.view.crop, steps, classes))
    assert isinstance(config, TrainConfig)
    inverse = None
    if config.method.runs_inverse and stage_1 and isinstance(stage_1.config, MechanismsConfig):
        one = stage_1.config
        inverse = build_inverse(one.initial_k, to_json(one.bank.generator), stage_1.name)
    return 3 * counted_bytes(config.method.build(Problem(classes, config.backbone.build(initialise=False), inverse)))


def forecast_table(found: Forecast) -> Table:
    """One row per kind of run."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("runs of", "runs", "finished", "steps left", "s/step", "hours", "measured by", "on"):
        table.add_column(title, justify="left" if title in ("runs of", "measured by", "on") else "right")
    for cost in found.kinds:
        rate, hours = f"{cost.rate.seconds:.3g}", f"{cost.seconds / 3600:.2f}"
        table.add_row(
            cost.kind,
            f"{cost.runs}",
            f"{cost.finished}",
            f"{cost.steps:,}",
            rate,
            hours,
            cost.rate.origin,
            cost.rate.device,
        )
    return table


def described(found: Forecast, out: Path) -> list[str]:
    """The totals in a few lines."""
    runs, finished = (sum(getattr(cost, name) for cost in found.kinds) for name in ("runs", "finished"))
    names = list(dict.fromkeys(cost.rate.device for cost in found.kinds))
    mixed = "" if len(names) == 1 else " These are not alike: take rates of one device."
    hours = [f"{format_duration(found.seconds_on(number))} on {number}" for number in DEVICES]
    disk = found.disk
    total = disk.images + disk.counterfactuals + disk.models + disk.largest
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    return [
        f"{runs} runs, {finished} of them finished. Left: {found.seconds / 3600:.2f} hours of one device "
        f"({', '.join(names)}).{mixed}",
        f"Extrapolated, with one run per device at a time: {', '.join(hours)}. Evaluations and compiling come on top.",
        f"Disk: {total / GIGABYTE:.1f} GB: {disk.images / GIGABYTE:.1f} GB of packed images in the cache, "
        f"{disk.counterfactuals / GIGABYTE:.1f} GB of counterfactuals, "
        f"{(disk.models + disk.largest) / GIGABYTE:.1f} GB of models and checkpoints. "
        f"The disk of {out} has {shutil.disk_usage(there).free / GIGABYTE:.1f} GB free.",
    ]
