"""What Slurm says about its jobs, and which of them belong to a suite."""

import json
import shutil
import subprocess
from pathlib import Path

from tcm.bench.launchers.launcher import JobState
from tcm.errors import InputError, printable

FOLDER, IDS = "slurm", "jobs.json"  # below the folder of the suite: submitit's files, and the Slurm job of each run
ANSWER_SECONDS = 20.0  # until a command of Slurm answers
ACTIVE = {  # states of jobs that Slurm still works on
    *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESIZING", "RESV_DEL_HOLD", "PREEMPTED"),
}


def slurm(*words: str, seconds: float = ANSWER_SECONDS, required: bool = True) -> str:
    """What a command of Slurm prints; an error if it fails and is required."""
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
        failed = ended.returncode != 0 and (ended.stderr.strip().split("\n")[-1] or f"exit code {ended.returncode}")
        text = ended.stdout
    except subprocess.TimeoutExpired:
        failed, text = f"no answer within {seconds:.0f} s", ""
    if failed and required:
        raise InputError(f"{words[0]} failed ({printable(failed)}); check that the Slurm cluster is up")
    return text


def slurm_jobs() -> dict[str, tuple[str, str]]:
    """State and machine of each job of this user that Slurm remembers, by its number such as 12 or 12_3."""
    lines = slurm("squeue", "--me", "--states=all", "--array", "--noheader", "--format=%i|%T|%N").splitlines()
    rows = [line.strip().split("|") for line in lines if line.count("|") == 2]
    return {number: (state, machine) for number, state, machine in rows}


def active_jobs() -> set[str]:
    """The jobs of this user that Slurm has not ended."""
    return {number for number, (state, _) in slurm_jobs().items() if state in ACTIVE}


def active_state(found: dict[str, tuple[str, str]], number: str) -> JobState:
    """The state of a job that has not ended."""
    state, machine = found.get(number, ("PENDING", ""))
    waits = state in ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD")
    return JobState("waiting" if waits else "running", f"{machine}, Slurm job {number}")


def read_ids(folder: Path) -> dict[str, str]:
    """The Slurm job of each run of a suite; none before the first was submitted."""
    file = folder / FOLDER / IDS
    return json.loads(file.read_text()) if file.exists() else {}


def states_in_slurm(folder: Path) -> dict[str, JobState]:
    """The states of the runs of a suite that Slurm still works on."""
    known = read_ids(folder)
    if not known or shutil.which("squeue") is None:
        return {}
    found = slurm_jobs()
    active = {name: number for name, number in known.items() if found.get(number, ("",))[0] in ACTIVE}
    return {name: active_state(found, number) for name, number in active.items()}
