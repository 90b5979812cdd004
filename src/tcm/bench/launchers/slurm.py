"""Jobs as job arrays of Slurm, through submitit. They go on without this process, and can be looked at later."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tcm.bench.launchers.launcher import JobState, Work
from tcm.bench.launchers.shared_folder import not_shared, token_file
from tcm.bench.launchers.slurm_jobs import (
    ACTIVE,
    ANSWER_SECONDS,
    FOLDER,
    IDS,
    active_jobs,
    active_state,
    read_ids,
    slurm,
    slurm_jobs,
)
from tcm.bench.launchers.worker import DONE, failure_reason, run_logged
from tcm.errors import InputError, Interrupted, printable
from tcm.training.files import write_atomically

FREE_SECONDS = 60  # until a machine is free for the first tiny job
SAVE_SECONDS = 90  # before the time limit, a job is asked to save
VISIBLE_SECONDS = 30.0  # until the files of a job that is done are seen here
QUICK, SLOW = 1.0, 10.0  # seconds between questions to Slurm: at first, and after a minute


@dataclass(frozen=True, kw_only=True)
class SlurmConfig:
    """What each job asks of Slurm."""

    partition: str | None = None
    """Partition. Default: the cluster's."""
    gpus: int | None = None
    """GPUs of each run. Default: --devices, none on a CPU."""
    cpus: int = 1
    """CPUs of each run, or of each of its processes with --devices."""
    memory: float | None = None
    """Memory of each run, in GB. Default: the cluster's."""
    minutes: int | None = None
    """Time limit of each run. A run that reaches it saves, is queued again and continues. Default: the partition's."""
    account: str | None = None
    """Account to charge."""
    qos: str | None = None
    """Quality of service."""


class SlurmLauncher:
    """Submits jobs of `devices` processes as arrays: one of those that need no other, and one for each job that others
    need. A job is one task of Slurm, which starts its other processes."""

    name = "slurm"

    def __init__(self, config: SlurmConfig, on_gpu: bool = True, devices: int = 1):
        self.config, self.devices = config, devices
        self.gpus = devices * on_gpu if config.gpus is None else config.gpus
        for field, least in (("gpus", 0), ("cpus", 1), ("minutes", 1), ("memory", 0)):
            value = getattr(config, field)
            if value is not None and value < least:
                raise InputError(f"slurm.{field}", f"is {value}; give {least} or more")
        if devices > 1 and config.gpus not in (None, 0, devices):
            found = f"is {config.gpus}, but each process of `devices={devices}` needs its own"
            raise InputError("slurm.gpus", f"{found}; leave it out")
        self.submitit = import_submitit()
        self.started = time.monotonic()
        self.works: dict[str, Work] = {}
        self.ids: dict[str, str] = {}
        self.ended: dict[str, JobState] = {}
        self.completed: dict[str, float] = {}  # when a job was first seen to be done

    def check(self, folder: Path) -> None:
        """An error if Slurm does not answer, has no such partition, or a machine does not see the folder."""
        self.folder = folder
        partitions = [name.rstrip("*") for name in slurm("sinfo", "--noheader", "--format=%R").split()]
        wanted = self.config.partition
        if wanted is not None and wanted not in partitions:
            known = ", ".join(dict.fromkeys(partitions)) or "none"
            raise InputError("slurm.partition", f'is "{printable(wanted)}"; the cluster has {known}')
        if read_ids(folder):
            return  # jobs of an earlier command were seen there, and may keep all machines busy
        with token_file(folder) as file:
            seen = slurm(
                *("srun", "--quiet", "--ntasks=1", "--time=1", f"--immediate={FREE_SECONDS}"),
                *([f"--partition={wanted}"] if wanted else []),
                *([f"--account={self.config.account}"] if self.config.account else []),
                *("sh", "-c", 'test -e "$0" && echo "seen $(hostname)" || echo "missing $(hostname)"', str(file)),
                seconds=FREE_SECONDS + ANSWER_SECONDS,
                required=False,
            ).split()
        if seen[:1] == ["missing"]:
            raise not_shared(folder, seen[1])
        if not seen:
            found = "no machine was free to check that it sees the output folder"
            warnings.warn(f"{found}; runs whose machine does not see it will fail", stacklevel=2)

    def submit(self, works: Sequence[Work]) -> None:
        """Submits the jobs that are not in Slurm already, from an earlier command."""
        self.works = {work.name: work for work in works}
        now, known = active_jobs(), read_ids(self.folder)
        self.ids = {name: known[name] for name in self.works if known.get(name) in now}
        self.ended = {work.name: JobState("done") for work in works if work.finished()}  # since they were planned
        left = [work for work in works if work.name not in self.ids and work.name not in self.ended]
        for before in dict.fromkeys(work.after for work in left):
            self._submit_array([work for work in left if work.after == before], before)

    def _submit_array(self, works: Sequence[Work], before: str) -> None:
        executor = self.submitit.SlurmExecutor(self.folder / FOLDER)
        executor.update_parameters(**self._parameters(before))
        try:
            # submitit prints what sbatch says; the error below does.
            with redirect_stderr(io.StringIO()), executor.batch():
                jobs = [executor.submit(run_slurm_job, work) for work in works]
        except (self.submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
            lines = [line for line in str(error).split("\n") if "error:" in line]
            reason = printable(lines[-1].strip() if lines else str(error).strip().split("\n")[-1])
            raise InputError(f"Slurm refused the jobs ({reason}); change what they ask for in `slurm`") from error
        self.ids |= {work.name: job.job_id for work, job in zip(works, jobs, strict=True)}
        content = json.dumps({**read_ids(self.folder), **self.ids}, indent=2)
        write_atomically(self.folder / FOLDER / IDS, content.encode())

    def _parameters(self, before: str) -> dict[str, Any]:
        """The options of sbatch, by submitit's names."""
        config = self.config
        more: dict[str, Any] = {"requeue": True, "kill-on-invalid-dep": "yes"}
        if before in self.ids:
            more["dependency"] = f"afterok:{self.ids[before]}"
        if config.memory is not None:
            more["mem"] = f"{round(config.memory * 1024)}M"
        wanted = {
            "partition": config.partition,
            "gpus_per_node": self.gpus or None,
            "time": config.minutes,
            "account": config.account,
            "qos": config.qos,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        cpus = config.cpus * self.devices
        fixed = {"job_name": "tcm", "nodes": 1, "ntasks_per_node": 1, "cpus_per_task": cpus}
        return {**fixed, **given, "signal_delay_s": SAVE_SECONDS, "additional_parameters": more}

    def states(self) -> dict[str, JobState]:
        """The state of every job, after a second, or ten if the suite takes longer than a minute."""
        time.sleep(QUICK if time.monotonic() - self.started < 60 else SLOW)
        found = slurm_jobs()
        for name in [name for name in self.works if name not in self.ended]:
            state, _ = found.get(self.ids[name], ("UNKNOWN", ""))
            if state not in ACTIVE and (ended := self._outcome(name, state)):
                self.ended[name] = ended
        return {
            name: self.ended[name] if name in self.ended else active_state(found, self.ids[name]) for name in self.works
        }

    def _outcome(self, name: str, state: str) -> JobState | None:
        """How a job ended that Slurm no longer works on; None if that is not certain yet."""
        work = self.works[name]
        if work.finished():
            return JobState("done")
        first = self.completed.setdefault(name, time.monotonic())
        if state in ("COMPLETED", "UNKNOWN") and time.monotonic() - first < VISIBLE_SECONDS:
            return None  # network file systems show new files after some seconds
        if work.after in self.ended and self.ended[work.after].status == "failed":
            return JobState("failed", reason=f"{work.after} failed")
        if state == "FAILED":
            return JobState("failed", reason=failure_reason(work.log, 1))
        return JobState("failed", reason=f"Slurm ended job {self.ids[name]} as {state} ({work.log})")

    def stop(self) -> str:
        """Leaves the jobs to Slurm."""
        numbers = " ".join(dict.fromkeys(self.ids[name].split("_")[0] for name in self.works if name not in self.ended))
        look = "look at them with `status=True`, or repeat the command to wait for them"
        return f"the others continue in Slurm: {look}; scancel {numbers} ends them"

    def close(self) -> None:
        """Nothing to end: the jobs are Slurm's."""


def import_submitit() -> Any:
    """The module `submitit`; an error if it or Slurm is not installed."""
    try:
        import submitit
    except ImportError as error:
        remedy = "install submitit with pip install 'tcm[slurm]'"
        raise InputError("launcher", f"is slurm, which needs submitit; {remedy}") from error
    if shutil.which("sbatch") is None:
        found = "is slurm, but this machine has no command sbatch"
        raise InputError("launcher", f"{found}; run tcm on a login node of the cluster")
    return submitit


def run_slurm_job(work: Work) -> None:
    """Runs a job in Slurm and ends the process. SIGTERM (cancelled or preempted) saves; so does SIGUSR2, which Slurm
    sends before the time limit, and then the job is queued again."""
    at_limit = False

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted("stopped before the first step; repeat the command to continue", number)

    def save_at_limit(number: int, frame: FrameType | None) -> None:
        nonlocal at_limit
        at_limit = True
        os.kill(os.getpid(), signal.SIGTERM)

    # In place of submitit's handlers, which ignore SIGTERM. While a run trains, its own handler saves.
    signal.signal(signal.SIGTERM, end)
    if hasattr(signal, "SIGUSR2"):  # Windows has neither it nor Slurm
        signal.signal(signal.SIGUSR2, save_at_limit)
    code = run_logged(work)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # everything is saved, and queuing the job again sends one
    if at_limit and code == 128 + signal.SIGTERM:
        env = os.environ
        own = f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}" if "SLURM_ARRAY_JOB_ID" in env else ""
        subprocess.run(["scontrol", "requeue", own or env["SLURM_JOB_ID"]], timeout=60)
    if code != DONE:
        sys.exit(code)
