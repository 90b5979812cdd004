"""Runs a suite with a launcher. Failures are reported and the other jobs continue.

Repeating a suite continues it: finished jobs are not run again.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tcm.bench.config import SuiteConfig
from tcm.bench.jobs import is_finished, require_same_config, suite_work
from tcm.bench.launchers.launcher import JobState, Launcher
from tcm.bench.launchers.local import LocalLauncher, visible_gpus
from tcm.bench.plan import Job, plan_jobs
from tcm.bench.progress_table import SuiteDisplay
from tcm.bench.tasks import suite_benchmark
from tcm.classifier.selection import RULES, selected
from tcm.errors import InputError, Interrupted
from tcm.results.store import add_rows, row
from tcm.training.device import cpu_count
from tcm.training.files import lock, make_folder
from tcm.training.launch import require_devices
from tcm.training.run_folder import Run
from tcm.training.stop_requests import StopRequest, stop_requests
from tcm.training.tracking import TrackerName, require_tracker

STORE = "results.csv"
PRELOAD = ("tcm.bench.jobs", "lightning_fabric")  # what takes seconds to import
MAX_JOBS = 8  # at once, unless `jobs` is larger


class SuiteResult(NamedTuple):
    """The outcome of a suite."""

    store: Path  # the rows of all finished runs
    finished: list[Path]  # run folders of stage 2, in the order of the suite
    failed: dict[str, str]  # name of the job: reason


def run_suite(
    benchmark: str,
    config: SuiteConfig,
    settings: Any,
    out: Path,
    jobs: int | None = None,
    quiet: bool = False,
    launcher: Launcher | None = None,
    log: TrackerName | None = None,
) -> SuiteResult:
    """Runs the unfinished jobs of a suite below `out` and stores a row of every finished run.

    `settings` has the settings of all methods, as in `method_settings`. Without a `launcher` the jobs are processes of
    this machine, `jobs` of them at once. `log` names a tracker that gets a copy of the metrics of all runs.
    """
    require_tracker(log)
    out = Path(os.path.abspath(out.expanduser()))
    benchmark = suite_benchmark(benchmark)
    planned = plan_jobs(benchmark, config, settings, out)
    launcher = launcher or local_launcher(config, jobs)
    make_folder(out)
    with lock(out):
        for job in planned:
            require_same_config(job, out)
        suite = Suite(benchmark, planned, out, log)
        suite.store_rows(job for job in planned if job.name in suite.done)
        if suite.unfinished:
            suite.run(launcher, quiet)
    finished = [out / job.name for job in planned if job.method and job.name in suite.done]
    return SuiteResult(out / STORE, finished, suite.failed)


def local_launcher(config: SuiteConfig, jobs: int | None) -> LocalLauncher:
    """Processes of this machine, `jobs` at once: one job per GPU or core, but one on GPUs, unless it is given."""
    if jobs is not None and jobs < 1:
        raise InputError("jobs", f"is {jobs}; give 1 or more")
    require_devices(config.devices, config.device)
    if config.device == "cpu" or not torch.cuda.is_available():
        return LocalLauncher(jobs or max(min(cpu_count() // config.devices, MAX_JOBS), 1), PRELOAD)
    gpus, jobs = visible_gpus(), jobs or 1
    if config.devices > 1 and jobs * config.devices > len(gpus):
        found = f"is {jobs}, and with `devices={config.devices}` these need {jobs * config.devices} GPUs"
        raise InputError("jobs", f"{found}, but there are {len(gpus)} here; give less")
    return LocalLauncher(jobs, PRELOAD, gpus, config.devices)


class Suite:
    """The jobs of a suite while it runs: which are done and which have failed."""

    def __init__(self, benchmark: str, jobs: Sequence[Job], out: Path, log: TrackerName | None = None):
        self.benchmark, self.jobs, self.out = benchmark, jobs, out
        self.log: TrackerName | None = log
        self.done = {job.name for job in jobs if is_finished(job, out)}
        self.unfinished = [job for job in jobs if job.name not in self.done]
        self.failed: dict[str, str] = {}  # name of the job: reason

    def run(self, launcher: Launcher, quiet: bool = False) -> None:
        """Runs all unfinished jobs; Ctrl-C or SIGTERM stops and saves those that are running, or leaves them."""
        try:
            launcher.check(self.out)
            with stop_requests() as stop, SuiteDisplay(self.jobs, self.out, quiet) as display:
                on_cluster = launcher.name != "local"
                works = [suite_work(job, self.out, on_cluster, self.log) for job in self.unfinished]
                launcher.submit([work if work.after not in self.done else work._replace(after="") for work in works])
                while self.ended < len(self.jobs) and not stop.requested:
                    states = launcher.states()
                    self.collect(states)
                    display.update(states, self.done)
                if self.ended < len(self.jobs):
                    raise self.stopped(launcher, stop)
        finally:
            launcher.close()

    @property
    def ended(self) -> int:
        """How many jobs are done or have failed."""
        return len(self.done) + len(self.failed)

    def collect(self, states: dict[str, JobState]) -> None:
        """Stores the rows of jobs that have finished, and keeps the reasons of those that have failed."""
        for job in self.unfinished:
            state = states[job.name]
            if state.status == "done" and job.name not in self.done:
                self.done.add(job.name)
                self.store_rows([job])
            elif state.status == "failed":
                self.failed[job.name] = state.reason

    def stopped(self, launcher: Launcher, stop: StopRequest) -> Interrupted:
        """Stops the launcher; what to tell the user."""
        remedy = launcher.stop()
        return Interrupted(
            f"stopped with {len(self.done)} of {len(self.jobs)} runs finished in {self.out}; {remedy}", stop.number
        )

    def store_rows(self, jobs: Iterable[Job]) -> None:
        """Adds the rows of finished runs of stage 2 to the store: one for every rule that can select a model."""
        rows = [found for job in jobs if job.method for found in self.rows(self.out / job.name)]
        # An existing store is read even if there is nothing to add: an unusable one is an error before the work.
        if rows or (self.out / STORE).exists():
            add_rows(self.out / STORE, rows)

    def rows(self, folder: Path) -> Iterable[dict[str, str]]:
        """The rows of a finished run."""
        metrics = Run(folder).metrics()
        for rule in RULES:
            try:
                step = None if rule == "last" else selected(metrics, rule).step
            except InputError:
                continue  # no labels for the oracle, or a score that was not finite
            yield row(folder, rule, step, self.benchmark)
