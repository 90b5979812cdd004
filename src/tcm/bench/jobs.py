"""One job of a suite: how it runs, in whatever process, and whether it is finished."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from tcm.bench.launchers.launcher import Work
from tcm.bench.plan import Job, in_suite_fields
from tcm.classifier.train import train_classifier
from tcm.config import to_json
from tcm.errors import InputError
from tcm.mechanisms.train import KIND, MechanismsConfig, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.training.fence import take_over
from tcm.training.launch import start_processes
from tcm.training.run_folder import Run
from tcm.training.tracking import TrackerName

LAST_BYTES = 4_000  # of metrics.jsonl: more than its last row


class JobProgress(NamedTuple):
    """How far a run is, from its files."""

    step: int
    steps: int
    written: float | None  # when it last wrote a row, in seconds since the epoch


def suite_work(job: Job, out: Path, on_cluster: bool, log: TrackerName | None = None) -> Work:
    """The job as a launcher takes it. On a cluster it takes over from a process that is believed dead."""
    call = partial(run_in_suite, job, out, sys.argv[1:], on_cluster, log)
    return Work(job.name, call, log_file(job, out), partial(is_finished, job, out), job.needs)


def run_in_suite(job: Job, out: Path, words: Sequence[str], on_cluster: bool, log: TrackerName | None) -> None:
    """Runs the job in this process, which is for it alone, and in those that it starts. Errors name the fields of the
    suite."""
    sys.argv[1:] = words  # environment.json shows the command of the suite
    folder, config = out / job.name, job.config
    again = partial(run_in_suite, job, out, words, on_cluster, log)
    try:
        processes = start_processes(config.devices, config.device, config.batch, again)
        if config.device == "cpu" or not torch.cuda.is_available():
            torch.set_num_threads(1)  # on a CPU the number of threads changes the last bits of a result
        if on_cluster and processes.first:
            take_over(folder)
            take_over(folder / "transported")
        run_job(job, folder, log)
    except InputError as error:
        raise in_suite_fields(job, error) from error


def run_job(job: Job, folder: Path, log: TrackerName | None = None) -> None:
    """Runs stage 1 and writes all counterfactuals, or runs stage 2."""
    if isinstance(job.config, MechanismsConfig):
        train_mechanisms(job.config, folder, log=log)
        transport(folder, device=job.config.device, devices=job.config.devices)
    else:
        train_classifier(job.method, job.config, folder, log=log)


def is_finished(job: Job, out: Path) -> bool:
    """Whether the job has nothing left to do."""
    finished = Run(out / job.name).finished
    if job.method or not finished:
        return finished
    return all((out / job.name / "transported" / side / "index.json").exists() for side in ("source", "target"))


def require_same_config(job: Job, out: Path) -> None:
    """An error if the job's folder has a run with another configuration."""
    run = Run(out / job.name)
    if run.exists:
        kind = {"method_name": job.method} if job.method else {"kind": KIND}
        run.require_same_config({**kind, **to_json(job.config.resolved())})


def job_progress(job: Job, out: Path) -> JobProgress:
    """How far the run of a job is; step 0 before its first row."""
    file, steps = Run(out / job.name).metrics_file, job.config.steps
    assert steps is not None
    try:
        with file.open("rb") as handle:
            handle.seek(max(0, file.stat().st_size - LAST_BYTES))
            rows = handle.read().decode(errors="replace").split("\n")
        written = file.stat().st_mtime
    except OSError:
        return JobProgress(0, steps, None)
    numbers = [row.removeprefix('{"step": ').split(",")[0] for row in rows if row.startswith('{"step": ')]
    return JobProgress(next((int(text) for text in reversed(numbers) if text.isdecimal()), 0), steps, written)


def log_file(job: Job, out: Path) -> Path:
    """The file with the output of the job's process."""
    return out / "logs" / f"{job.name.replace('/', '-')}.log"
