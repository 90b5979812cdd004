"""Jobs as tasks of a Ray cluster. Ray places them, and repeats them when a worker or a machine is lost."""

import io
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcm.bench.launchers.launcher import JobState, Work
from tcm.bench.launchers.shared_folder import not_shared, token_file
from tcm.bench.launchers.worker import DONE, FAILED, LOST, failure_reason, machine_of, run_logged, size_of
from tcm.errors import InputError, LostProcess, printable

POLL_SECONDS = 0.5
CONNECT_SECONDS = 4.0  # until a machine answers at all
HEALTH_SECONDS = 15.0  # until it answers as a Ray cluster; both together stay below 20 s
CHECK_SECONDS = 60.0  # until every machine has run a tiny task
STOP_SECONDS = 120.0  # until the running jobs have saved
AFTER_FAILED = 3  # exit code of a job whose earlier job failed


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """What each job needs of a Ray cluster."""

    cpus: float = 1.0
    """CPUs of each run, or of each of its processes with --devices."""
    gpus: float | None = None
    """GPUs of each run. A fraction puts several runs on one GPU. Default: --devices if the cluster has any, none on a
    CPU."""
    retries: int = 3
    """How often a run is repeated whose process or machine was lost. Runs that fail by themselves are not repeated."""


class RayLauncher:
    """Runs jobs of `devices` processes on the cluster at `address`; "auto" is the one of this machine. `on_gpu`: jobs
    may use GPUs."""

    name = "ray"

    def __init__(self, config: RayConfig, address: str = "auto", on_gpu: bool = True, devices: int = 1):
        for field in ("cpus", "gpus", "retries"):
            value = getattr(config, field)
            if value is not None and not 0 <= value < float("inf"):
                raise InputError(f"ray.{field}", f"is {value}; give 0 or more")
        if devices > 1 and config.gpus not in (None, 0, devices):
            found = f"is {config.gpus:g}, but each process of `devices={devices}` needs its own"
            raise InputError("ray.gpus", f"{found}; leave it out")
        self.config, self.address, self.on_gpu, self.devices = config, address, on_gpu, devices
        self.ray = import_ray()
        self.works: dict[str, Work] = {}
        self.refs: dict[str, Any] = {}  # of the task of each job
        self.ended: dict[str, JobState] = {}
        self.lost: set[str] = set()  # machines that need not be reported any more
        self.silence = ExitStack()

    def check(self, folder: Path) -> None:
        """Connects; an error if the cluster does not answer, is too small for a job or does not see the folder."""
        # Ray prints lines of its own about lost processes, in the middle of the table or of the results.
        self.silence.enter_context(redirect_stdout(io.StringIO()))
        connect(self.ray, self.address)
        self.gpus = self.config.gpus
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        self.lost = {node["NodeID"] for node in self.ray.nodes() if not node["Alive"]}  # before this suite
        if self.gpus is None:
            self.gpus = float(self.on_gpu and any(node["Resources"].get("GPU") for node in nodes)) * self.devices
        self.cpus = self.config.cpus * self.devices
        for field, kind, needed in (("cpus", "CPU", self.cpus), ("gpus", "GPU", self.gpus)):
            most = max((node["Resources"].get(kind, 0) for node in nodes), default=0)
            if needed > most:
                of_all = f", with {self.devices} devices" if self.devices > 1 else ""
                found = f"is {needed:g}{of_all}, but no machine of the cluster has more than {most:g}"
                raise InputError(f"ray.{field}", f"{found}; give less")
        with token_file(folder) as file:
            self._require_seen(nodes, file)

    def _require_seen(self, nodes: Sequence[dict[str, Any]], file: Path) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        seen = {}
        for node in nodes:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = self.ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(sees)
            seen[node["NodeManagerAddress"]] = task.remote(str(file))
        for machine, ref in seen.items():
            try:
                found = self.ray.get(ref, timeout=CHECK_SECONDS)
            except self.ray.exceptions.RayError as error:
                reason = printable(str(error).strip().split("\n")[-1])
                raise InputError(f"{machine} cannot run jobs ({reason}); install the same tcm there") from error
            if not found:
                raise not_shared(file.parent, machine)

    def submit(self, works: Sequence[Work]) -> None:
        """Gives all jobs to Ray: each waits for the result of the one that it needs."""
        needs = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": self.config.retries}
        # A new process for each job: it is free to redirect its output, and leaves no memory on a GPU.
        task = self.ray.remote(max_calls=1, retry_exceptions=[LostProcess], **needs)(run_task)
        self.works = {work.name: work for work in works}
        self.sizes = {work.name: size_of(work.log) for work in works}
        for work in works:
            self.refs[work.name] = task.options(name=work.name).remote(work, self.refs.get(work.after))

    def states(self) -> dict[str, JobState]:
        """The state of every job, after at most half a second."""
        waiting = [ref for name, ref in self.refs.items() if name not in self.ended]
        if waiting:
            self.ray.wait(waiting, timeout=POLL_SECONDS)
            ready, _ = self.ray.wait(waiting, num_returns=len(waiting), timeout=0)
            for name in [name for name, ref in self.refs.items() if name not in self.ended and ref in ready]:
                self.ended[name] = self._outcome(name)
        self._report_lost()
        return {name: self._state(name) for name in self.works}

    def _state(self, name: str) -> JobState:
        if name in self.ended:
            return self.ended[name]
        machine = machine_of(self.works[name].log, self.sizes[name])
        return JobState("running", machine) if machine else JobState("waiting")

    def _outcome(self, name: str) -> JobState:
        work = self.works[name]
        try:
            code = self.ray.get(self.refs[name])
        except self.ray.exceptions.RayError as error:  # lost more often than it may be repeated, or no tcm there
            reason = f"Ray gave it up: {printable(str(error).strip().split(chr(10))[0])} ({work.log})"
            return JobState("failed", reason=reason)
        if code == AFTER_FAILED:
            return JobState("failed", reason=f"{work.after} failed")
        return JobState("failed", reason=failure_reason(work.log, code)) if code else JobState("done")

    def _report_lost(self) -> None:
        """Warns once of each machine that was lost, and if no machine is left that could run a job."""
        nodes = self.ray.nodes()
        for node in nodes:
            if not node["Alive"] and node["NodeID"] not in self.lost:
                self.lost.add(node["NodeID"])
                machine = f"{node['NodeManagerAddress']} (Ray node {node['NodeID'][:8]})"
                able = any(one["Alive"] and one["Resources"].get("CPU", 0) >= self.cpus for one in nodes)
                then = "its runs continue on others" if able else "the runs wait for another one"
                warnings.warn(f"the machine {machine} was lost; {then}", stacklevel=2)

    def stop(self) -> str:
        """Asks the running jobs to finish their step and save, drops the others and waits."""
        left = [ref for name, ref in self.refs.items() if name not in self.ended]
        for ref in left:
            self.ray.cancel(ref, force=False)  # in a job it is a Ctrl-C
        if left:
            self.ray.wait(left, num_returns=len(left), timeout=STOP_SECONDS)
        return "repeat the command to continue"

    def close(self) -> None:
        """Disconnects. Ray ends the tasks that are left."""
        self.ray.shutdown()
        self.silence.close()


def import_ray() -> Any:
    """The module `ray`, with its usage statistics off."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "launcher", "is ray, which is not installed; install it with pip install 'tcm[ray]'"
        ) from error
    return ray


def connect(ray: Any, address: str) -> None:
    """Connects to the cluster; an error within 20 s if it does not answer."""
    require_answer(address)
    # Ray sets a handler of SIGTERM of its own.
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, logging_level="error", log_to_driver=False, include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise unreachable(address, str(error)) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def require_answer(address: str) -> None:
    """An error unless there is a Ray cluster at HOST:PORT. Ray itself would try for two minutes.

    auto may be the cluster of an earlier day, which Ray still has a note of.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and not (host and port.isdecimal()):
        raise InputError("address", f'is "{printable(address)}"; give HOST:PORT of the head of the cluster, or auto')
    try:
        if address != "auto":
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
        if not address.startswith("ray://"):
            check = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
            where = [] if address == "auto" else ["--address", address]
            subprocess.run([*check, *where], timeout=HEALTH_SECONDS, check=True, capture_output=True)
    except (OSError, OverflowError, subprocess.SubprocessError) as error:
        reason = getattr(error, "strerror", None) or "it does not answer as a Ray cluster"
        raise unreachable(address, reason) from error


def unreachable(address: str, reason: str) -> InputError:
    """The error if there is no cluster at the address."""
    why = printable(reason.strip().split("\n")[0])
    found = f'is "{printable(address)}", where no Ray cluster can be reached ({why})'
    return InputError("address", f"{found}; start one with ray start --head, and give the address that it prints")


def sees(file: str) -> bool:
    """Whether this machine has the file."""
    return os.path.exists(file)


def run_task(work: Work, before: int | None) -> int:
    """Runs a job in a Ray worker unless the one that it needs failed. Returns the exit code."""
    if before not in (None, DONE):
        return AFTER_FAILED
    code = run_logged(work)
    if code == LOST:
        raise LostProcess(failure_reason(work.log, code))  # Ray runs it again
    return FAILED if code == DONE and not work.finished() else code
