"""Jobs as processes of this machine."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from tcm.bench.launchers.launcher import JobState, Work
from tcm.bench.launchers.worker import failure_reason, run_logged

POLL_SECONDS = 0.3


class LocalLauncher:
    """Runs at most `at_once` jobs at a time, each in a fork of a server that has imported `preload`: importing torch
    takes seconds. A process per job, so that one that is killed harms no other.

    Each job sees `devices` of the `gpus`. Jobs share a GPU only if there are too few.
    """

    name = "local"

    def __init__(self, at_once: int, preload: Sequence[str] = (__name__,), gpus: Sequence[str] = (), devices: int = 1):
        self.preload = preload
        self.free = [gpus_of(place, devices, gpus) for place in range(at_once)]  # the GPUs of jobs that may start
        self.works: dict[str, Work] = {}
        self.ended: dict[str, JobState] = {}
        self.running: dict[str, BaseProcess] = {}
        self.taken: dict[str, str] = {}  # the GPUs of running jobs

    def check(self, folder: Path) -> None:
        """This machine sees its own files."""

    def submit(self, works: Sequence[Work]) -> None:
        """Takes jobs. They start in their order as soon as they can."""
        self.works = {work.name: work for work in works}
        self.new_process = process_type(self.preload)

    def states(self) -> dict[str, JobState]:
        """The state of every job, after at most 0.3 s."""
        self._start_ready()
        connection.wait([process.sentinel for process in self.running.values()], POLL_SECONDS)
        for name in [name for name, process in self.running.items() if not process.is_alive()]:
            code = self.running.pop(name).exitcode
            self.free.append(self.taken.pop(name))
            failed = JobState("failed", reason=failure_reason(self.works[name].log, code))
            self.ended[name] = failed if code else JobState("done")
        return {name: self._state(name) for name in self.works}

    def _state(self, name: str) -> JobState:
        if name in self.running:
            return JobState("running", f"process {self.running[name].pid}")
        return self.ended.get(name, JobState("waiting"))

    def _start_ready(self) -> None:
        for name, work in self.works.items():
            if name in self.ended or name in self.running:
                continue
            before = self._state(work.after).status if work.after in self.works else "done"
            if before == "failed":
                self.ended[name] = JobState("failed", reason=f"{work.after} failed")
            elif before == "done" and self.free:
                self.taken[name] = self.free.pop(0)
                process = self.new_process(target=run_in_process, args=(work, self.taken[name]))
                process.start()
                self.running[name] = process

    def stop(self) -> str:
        """Asks the running jobs to finish their step and save, and waits for them.

        Windows has no such request: there they end at once, and lose the steps since they last saved.
        """
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.join()
        return "repeat the command to continue"

    def close(self) -> None:
        """Ends the jobs that still run, at once."""
        for process in self.running.values():
            process.kill()


def process_type(preload: Sequence[str]) -> Callable[..., BaseProcess]:
    """The process class: forks of a server that has imported `preload`, or new processes where there is no fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn").Process
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    # The server inherits that SIGTERM is ignored; it ignores Ctrl-C by itself. Only the suite handles a signal to the
    # whole process group: if the server ended, its jobs would end at once, without saving.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGTERM, before)
    return context.Process


def visible_gpus() -> list[str]:
    """The names of the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",") if given else [str(number) for number in range(torch.cuda.device_count())]


def gpus_of(place: int, devices: int, gpus: Sequence[str]) -> str:
    """The GPUs of the job at a place, with commas between them; "" without GPUs."""
    return ",".join(gpus[(place * devices + number) % len(gpus)] for number in range(devices if gpus else 0))


def run_in_process(work: Work, gpus: str) -> None:
    """Runs a job in its own process, which ends when the process that started it ends."""
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches only the launcher's process, which then stops its jobs
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    sys.exit(run_logged(work))


def exit_with_parent() -> None:
    """Ends this process when the launcher's process has ended: another one may then continue the job."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
