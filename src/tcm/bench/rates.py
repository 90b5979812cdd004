"""Seconds per training step: from rows of finished runs, or from a probe of 20 steps on a few images."""

import dataclasses
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tcm.bench.plan import Job
from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.config import to_json
from tcm.data.store import ImageStore
from tcm.data.task import Task, load_task
from tcm.errors import Interrupted
from tcm.mechanisms.train import MechanismsConfig, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.progress import ProgressDisplay
from tcm.training.run_folder import Run, read_json

PROBE_STEPS = 20
COUNTED = 10  # of them: the first ones take longer
PROBE_IMAGES = 64  # of each domain: how long a step takes does not depend on how many there are


class Rate(NamedTuple):
    """How long a step takes, and where that was measured."""

    seconds: float
    device: str
    origin: str
    seconds_per_image: float = 0.0  # of writing the counterfactuals of stage 1


def kind_of(job: Job) -> str:
    """What jobs with one rate have in common: the method, or stage 1 and its number of mechanisms."""
    return f"stage 1, k = {job.config.k}" if isinstance(job.config, MechanismsConfig) else job.method


def rates_of_rows(jobs: Iterable[Job], rows: Sequence[Mapping[str, str]]) -> dict[str, Rate]:
    """The rates of methods for which there are rows of the same backbone, crop and batch.

    If there are rows of several devices, the device with the most steps counts.
    """
    measured: dict[str, dict[str, list[tuple[float, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        config = json.loads(row["config"])
        if row["selection"] == "last" and float(row["seconds"] or 0) > 0 and config.get("devices", 1) == 1:
            key = comparable(row["method"], config)
            measured[key][row["device"]].append((float(row["seconds"]), int(row["steps"])))
    rates = {}
    for job in jobs:
        by_device = measured.get(comparable(job.method, to_json(job.config.resolved()))) if job.method else None
        if by_device:
            device, pairs = max(by_device.items(), key=lambda item: sum(steps for _, steps in item[1]))
            seconds = sum(seconds for seconds, _ in pairs) / sum(steps for _, steps in pairs)
            rates[kind_of(job)] = Rate(seconds, device, f"rows: {len(pairs)}")
    return rates


def comparable(method: str, config: Mapping[str, Any]) -> str:
    """The settings that a step's time depends on most, as text. resnet50.tv_in1k is as fast as resnet50."""
    name = config["backbone"]["name"].split(".")[0]
    return json.dumps([method, name, config["data"]["crop"], config["batch"]])


def probed_rates(jobs: Sequence[Job], kinds: Sequence[str], quiet: bool = False) -> dict[str, Rate]:
    """The rates of these kinds of jobs on this machine: each trains 20 steps in a folder that is thrown away."""
    wanted = {kind: next(job for job in jobs if kind_of(job) == kind) for kind in kinds}
    by_name, rates = {job.name: job for job in jobs}, dict[str, Rate]()
    with (
        tempfile.TemporaryDirectory() as folder,
        ProgressDisplay("probe", len(wanted), unit="run", quiet=quiet) as show,
    ):
        for number, (kind, job) in enumerate(wanted.items()):
            show.update(number, kind)
            few = few_images(load_task(job.config.resolved().data, quiet=True))
            chain = [by_name[job.needs], job] if job.needs else [job]
            for one in chain:
                try:
                    rates[kind] = probe(one, Path(folder), few)
                except Interrupted as stop:  # its text names the folder, which is thrown away
                    found = f"stopped after measuring {number} of {len(wanted)} kinds of runs; nothing was kept"
                    raise Interrupted(found, stop.signal_number) from stop
        show.update(len(wanted), "")
    return rates


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, a CPU computes with one thread, as in the runs of a suite."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def probe(job: Job, out: Path, few: Task) -> Rate:
    """The rate of a job, whose folder and the one that it needs are below `out`."""
    if isinstance(job.config, MechanismsConfig):
        return probe_mechanisms(job.config, out / job.name, few)
    return probe_classifier(job.method, job.config, out / job.name, out / job.needs if job.needs else None, few)


def probe_mechanisms(config: MechanismsConfig, folder: Path, few: Task) -> Rate:
    """The rate of stage 1, and of its counterfactuals."""
    bank = dataclasses.replace(config.bank, warmup=0)
    short = dataclasses.replace(config, bank=bank, steps=PROBE_STEPS, log_every=1, compile="off")
    train_mechanisms(short, folder, quiet=True, task=few)
    start = time.perf_counter()
    transport(folder, device=config.device, quiet=True, task=few)
    return measured_rate(folder)._replace(seconds_per_image=(time.perf_counter() - start) / sum(map(len, few)))


def probe_classifier(method: str, config: TrainConfig[Any], folder: Path, mechanisms: Path | None, few: Task) -> Rate:
    """The rate of stage 2."""
    short = dataclasses.replace(config, steps=PROBE_STEPS, evaluate_every=PROBE_STEPS, log_every=1, compile="off")
    train_classifier(method, dataclasses.replace(short, mechanisms=mechanisms), folder, quiet=True, task=few)
    return measured_rate(folder)


def measured_rate(folder: Path) -> Rate:
    """The mean of the last steps of a run that logged each."""
    seconds = [row["seconds"] for row in Run(folder).metrics() if "seconds" in row][-COUNTED:]
    device = read_json(folder / "environment.json")["device_name"]
    return Rate(sum(seconds) / len(seconds), device, f"probe: {PROBE_STEPS} steps")


def few_images(task: Task) -> Task:
    """A task of a few images of each domain, spread over the whole domain."""

    def few(store: ImageStore) -> ImageStore:
        chosen = range(0, len(store), max(len(store) // PROBE_IMAGES, 1))[:PROBE_IMAGES]
        numbers = list(chosen)
        return dataclasses.replace(
            store,
            images=store.images[numbers],
            labels=store.labels[numbers],
            **{name: [getattr(store, name)[i] for i in numbers] for name in ("paths", "original_sizes", "hashes")},
        )

    return Task(*map(few, task))
