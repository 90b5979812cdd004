"""Runs a suite: every job in a process of its own, nothing finished twice, a failure told and the rest gone on with."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from multiprocessing import connection, forkserver, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tcm.bench.config import SuiteConfig
from tcm.bench.plan import Job, in_suite_fields, plan_jobs, suite_benchmark
from tcm.classifier.selection import RULES, selected
from tcm.classifier.train import train_classifier
from tcm.config import to_json
from tcm.errors import InputError, Interrupted, printable
from tcm.mechanisms.train import KIND, MechanismsConfig, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.progress import ProgressDisplay
from tcm.results.store import add_rows, row
from tcm.training.loop import stop_requests
from tcm.training.run_config import require_device
from tcm.training.run_folder import Run, lock, make_folder

STORE = "results.csv"
MOST_JOBS = 8
LOOK_EVERY = 0.3  # seconds


class SuiteResult(NamedTuple):
    """What became of a suite."""

    store: Path  # the rows of all finished runs
    finished: list[Path]  # folders of stage 2's runs, in the order of the suite
    failed: dict[str, str]  # by the job's name, what its process said last


def run_suite(
    benchmark: str, config: SuiteConfig, settings: Any, out: Path, at_once: int | None = None, quiet: bool = False
) -> SuiteResult:
    """Runs what is left to do of a suite below `out`, so many jobs at once, and keeps a row of every finished run.

    `settings` are the methods' (`method_settings`).
    """
    out = Path(os.path.abspath(out.expanduser()))
    if at_once is not None and at_once < 1:
        raise InputError(f"--jobs is {at_once}; give 1 or more")
    require_device(config.device)
    benchmark = suite_benchmark(benchmark)
    jobs = plan_jobs(benchmark, config, settings, out)
    on_gpu = config.device != "cpu" and torch.cuda.is_available()
    at_once = at_once or (1 if on_gpu else min(len(os.sched_getaffinity(0)), MOST_JOBS))
    make_folder(out)
    with closing(lock(out)):
        for job in jobs:
            require_same(job, out)
        done = {job.name for job in jobs if is_finished(job, out)}
        keep_rows(benchmark, out, (job for job in jobs if job.name in done))
        # One thread each: the number of threads is part of a result on a CPU.
        failed = work_off(benchmark, jobs, done, out, at_once, threads=0 if on_gpu else 1, quiet=quiet)
    return SuiteResult(out / STORE, [out / job.name for job in jobs if job.method and job.name in done], failed)


def work_off(
    benchmark: str, jobs: list[Job], done: set[str], out: Path, at_once: int, *, threads: int, quiet: bool
) -> dict[str, str]:
    """Runs the jobs that are not `done`, adds their names to it, and tells what those said that failed."""
    waiting = [job for job in jobs if job.name not in done]
    running: dict[ForkServerProcess, Job] = {}
    failed: dict[str, str] = {}
    start_server()
    with stop_requests() as stop, ProgressDisplay("suite", len(jobs), unit="run", done=len(done), quiet=quiet) as show:
        try:
            while (waiting or running) and not stop.requested:
                for job in [job for job in waiting if job.needs in failed]:
                    failed[job.name] = f"{job.needs} failed"
                    waiting.remove(job)
                ready = [job for job in waiting if not job.needs or job.needs in done]
                for job in ready[: at_once - len(running)]:
                    waiting.remove(job)
                    running[started(job, out, threads)] = job
                connection.wait([process.sentinel for process in running], LOOK_EVERY)
                for process in [process for process in running if not process.is_alive()]:
                    job = running.pop(process)
                    if process.exitcode == 0:
                        done.add(job.name)
                        keep_rows(benchmark, out, [job])
                    else:
                        failed[job.name] = last_words(log_of(job, out), process.exitcode)
                show.update(len(done) + len(failed), ", ".join(job.name for job in running.values()))
            for process in running:
                process.terminate()  # it finishes its step and saves
            for process in running:
                process.join()
        finally:
            for process in running:
                process.kill()
        if stop.requested:
            saved = f"stopped with {len(done)} of {len(jobs)} runs finished in {out}"
            raise Interrupted(f"{saved}; repeat the command to continue", stop.number)
    return failed


def start_server() -> None:
    """Starts the process that jobs are forked from: it has imported everything and does nothing else.

    It ignores SIGTERM, as it does Ctrl-C: a signal to the whole process group is for the suite, and jobs that lose the
    server end at once, without saving.
    """
    get_context("forkserver").set_forkserver_preload([__name__])
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the server inherits that
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGTERM, before)


def started(job: Job, out: Path, threads: int) -> ForkServerProcess:
    """The job's process."""
    process = get_context("forkserver").Process(target=perform, args=(job, out, threads))
    process.start()
    return process


def perform(job: Job, out: Path, threads: int) -> None:
    """Carries a job out in a process of its own, which writes to a log and ends when the suite does."""
    os.setsid()  # Ctrl-C reaches the suite alone, which then asks its jobs to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    log = log_of(job, out)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if threads:
        torch.set_num_threads(threads)
    try:
        carry_out(job, out / job.name)
    except InputError as error:
        print(f"error: {printable(in_suite_fields(job, error))}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as stopped:
        print(printable(stopped), file=sys.stderr)
        sys.exit(128 + stopped.signal_number)


def end_with(parent: int) -> None:
    """Ends this process when the one that it was forked from is gone, as that is with the suite.

    Another suite may go on with the run.
    """
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os._exit(1)


def carry_out(job: Job, folder: Path) -> None:
    """Stage 1 with all its counterfactuals, or stage 2."""
    if isinstance(job.config, MechanismsConfig):
        train_mechanisms(job.config, folder)
        transport(folder, device=job.config.device)
    else:
        train_classifier(job.method, job.config, folder)


def is_finished(job: Job, out: Path) -> bool:
    """Whether there is nothing left to do."""
    whole = Run(out / job.name).finished
    if job.method or not whole:
        return whole
    return all((out / job.name / "transported" / side / "index.json").exists() for side in ("source", "target"))


def require_same(job: Job, out: Path) -> None:
    """An error if the job's folder holds a run of another configuration."""
    run = Run(out / job.name)
    if run.exists:
        kind = {"method_name": job.method} if job.method else {"kind": KIND}
        run.require_same({**kind, **to_json(job.config.resolved())})


def keep_rows(benchmark: str, out: Path, jobs: Iterable[Job]) -> None:
    """Adds the rows of finished runs of stage 2 to the store: one for every rule that can choose among its models."""
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
    # A store that is there is read even if nothing is to be added: a wrong one is found before the work.
    if rows or (out / STORE).exists():
        add_rows(out / STORE, rows)


def log_of(job: Job, out: Path) -> Path:
    """What the job's process says."""
    return out / "logs" / f"{job.name.replace('/', '-')}.log"


def last_words(log: Path, exit_code: int | None) -> str:
    """The last line of a failed job's log, without "error: "."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    said = [line.strip() for line in lines if line.strip()]
    if said and exit_code != -9:
        return f"{printable(said[-1].removeprefix('error: '))} ({log})"
    ended = "was killed, perhaps for want of memory" if exit_code == -9 else f"ended with {exit_code}"
    return f"its process {ended} ({log})"
