"""Runs a suite, each job in its own process. Failures are reported and the other jobs continue.

Repeating a suite continues it: finished jobs are not run again.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tcm.bench.config import SuiteConfig
from tcm.bench.plan import Job, in_suite_fields, plan_jobs
from tcm.bench.tasks import suite_benchmark
from tcm.classifier.selection import RULES, selected
from tcm.classifier.train import train_classifier
from tcm.config import to_json
from tcm.errors import InputError, Interrupted, printable
from tcm.mechanisms.train import KIND, MechanismsConfig, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.progress import ProgressDisplay
from tcm.results.store import add_rows, row
from tcm.training.device import cpu_count, require_device
from tcm.training.files import lock, make_folder
from tcm.training.run_folder import Run
from tcm.training.stop_requests import stop_requests
from tcm.training.tracking import TrackerName, require_tracker

STORE = "results.csv"
MAX_JOBS = 8  # at once, unless `jobs` is larger
POLL_SECONDS = 0.3


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
    log: TrackerName | None = None,
) -> SuiteResult:
    """Runs the unfinished jobs of a suite below `out` and stores a row of every finished run.

    `settings` has the settings of all methods, as in `method_settings`; `jobs` is the number of jobs at once; `log`
    names a tracker that gets a copy of the metrics of all runs.
    """
    require_tracker(log)
    out = Path(os.path.abspath(out.expanduser()))
    if jobs is not None and jobs < 1:
        raise InputError("jobs", f"is {jobs}; give 1 or more")
    require_device(config.device)
    benchmark = suite_benchmark(benchmark)
    planned = plan_jobs(benchmark, config, settings, out)
    on_gpu = config.device != "cpu" and torch.cuda.is_available()
    at_once = jobs or (1 if on_gpu else min(cpu_count(), MAX_JOBS))
    make_folder(out)
    with lock(out):
        for job in planned:
            require_same_config(job, out)
        # One thread each: on a CPU the number of threads changes the last bits of a result.
        queue = JobQueue(benchmark, planned, out, at_once, threads=0 if on_gpu else 1, log=log)
        store_rows(benchmark, out, (job for job in planned if job.name in queue.done))
        queue.run(quiet)
    finished = [out / job.name for job in planned if job.method and job.name in queue.done]
    return SuiteResult(out / STORE, finished, queue.failed)


class JobQueue:
    """The jobs of a suite: waiting, running, done or failed."""

    def __init__(
        self, benchmark: str, jobs: list[Job], out: Path, at_once: int, *, threads: int, log: TrackerName | None = None
    ):
        self.benchmark, self.out, self.at_once, self.threads, self.log = benchmark, out, at_once, threads, log
        self.total = len(jobs)
        self.done = {job.name for job in jobs if is_finished(job, out)}
        self.waiting = [job for job in jobs if job.name not in self.done]
        self.running: dict[BaseProcess, Job] = {}
        self.failed: dict[str, str] = {}  # name of the job: reason

    def run(self, quiet: bool = False) -> None:
        """Runs all waiting jobs; Ctrl-C or SIGTERM stops and saves those that are running."""
        if not self.waiting:
            return
        new_process = process_type()
        progress = ProgressDisplay("suite", self.total, unit="run", done=len(self.done), quiet=quiet)
        with stop_requests() as stop, progress as display:
            try:
                while (self.waiting or self.running) and not stop.requested:
                    self.start_ready(new_process)
                    connection.wait([process.sentinel for process in self.running], POLL_SECONDS)
                    self.collect_ended()
                    names = ", ".join(job.name for job in self.running.values())
                    display.update(len(self.done) + len(self.failed), names)
                self.stop_running()
            finally:
                for process in self.running:
                    process.kill()
            if stop.requested:
                saved = f"stopped with {len(self.done)} of {self.total} runs finished in {self.out}"
                raise Interrupted(f"{saved}; repeat the command to continue", stop.number)

    def start_ready(self, new_process: Callable[..., BaseProcess]) -> None:
        """Starts as many jobs as may run at once; a job that needs a failed one fails."""
        for job in [job for job in self.waiting if job.needs in self.failed]:
            self.failed[job.name] = f"{job.needs} failed"
            self.waiting.remove(job)
        ready = [job for job in self.waiting if not job.needs or job.needs in self.done]
        for job in ready[: self.at_once - len(self.running)]:
            self.waiting.remove(job)
            process = new_process(target=run_in_process, args=(job, self.out, self.threads, self.log))
            process.start()
            self.running[process] = job

    def collect_ended(self) -> None:
        """Stores the rows of jobs that have finished, and the reasons of those that have failed."""
        for process in [process for process in self.running if not process.is_alive()]:
            job = self.running.pop(process)
            if process.exitcode == 0:
                self.done.add(job.name)
                store_rows(self.benchmark, self.out, [job])
            else:
                self.failed[job.name] = failure_reason(log_file(job, self.out), process.exitcode)

    def stop_running(self) -> None:
        """Asks the running jobs to finish their step and save, and waits for them.

        Windows has no such request: there they end at once, and lose the steps since they last saved.
        """
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.join()


def process_type() -> Callable[..., BaseProcess]:
    """The process class: forks of a server that has imported everything, or new processes where there is no fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn").Process
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    # The server inherits that SIGTERM is ignored; it ignores Ctrl-C by itself. Only the suite handles a signal to the
    # whole process group: if the server ended, its jobs would end at once, without saving.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGTERM, before)
    return context.Process


def run_in_process(job: Job, out: Path, threads: int, log: TrackerName | None) -> None:
    """Runs a job in its own process, which writes to a log file and ends when the suite ends."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches only the suite, which then stops its jobs
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=exit_with_suite, daemon=True).start()
    output = log_file(job, out)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if threads:
        torch.set_num_threads(threads)
    try:
        run_job(job, out / job.name, log)
    except InputError as error:
        print(f"error: {printable(in_suite_fields(job, error))}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as stopped:
        print(printable(stopped), file=sys.stderr)
        sys.exit(128 + stopped.signal_number)


def exit_with_suite() -> None:
    """Ends this process when the suite's process has ended: another suite may then continue the run."""
    suite = multiprocessing.parent_process()
    assert suite is not None
    suite.join()
    os._exit(1)


def run_job(job: Job, folder: Path, log: TrackerName | None = None) -> None:
    """Runs stage 1 and writes all counterfactuals, or runs stage 2."""
    if isinstance(job.config, MechanismsConfig):
        train_mechanisms(job.config, folder, log=log)
        transport(folder, device=job.config.device)
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


def store_rows(benchmark: str, out: Path, jobs: Iterable[Job]) -> None:
    """Adds the rows of finished runs of stage 2 to the store: one for every rule that can select a model of the run."""
    rows = []
    for job in jobs:
        if job.method:
            folder = out / job.name
            metrics = Run(folder).metrics()
            for rule in RULES:
                try:
                    step = None if rule == "last" else selected(metrics, rule).step
                except InputError:
                    continue  # no labels for the oracle, or a score that was not finite
                rows.append(row(folder, rule, step, benchmark))
    # An existing store is read even if there is nothing to add, so that an unusable one is an error before the work.
    if rows or (out / STORE).exists():
        add_rows(out / STORE, rows)


def log_file(job: Job, out: Path) -> Path:
    """The file with the output of the job's process."""
    return out / "logs" / f"{job.name.replace('/', '-')}.log"


def failure_reason(log: Path, exit_code: int | None) -> str:
    """The last line of a failed job's log, without "error: "."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    filled = [line.strip() for line in lines if line.strip()]
    if filled and exit_code != -9:
        return f"{printable(filled[-1].removeprefix('error: '))} ({log})"
    end = "was killed, perhaps because memory ran out" if exit_code == -9 else f"ended with exit code {exit_code}"
    return f"its process {end} ({log})"
