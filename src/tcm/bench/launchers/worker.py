"""A job in the process that runs it: its output goes to a log, and how it ended to an exit code."""

import os
import socket
import sys
import traceback
from datetime import datetime
from pathlib import Path

from tcm.bench.launchers.launcher import Work
from tcm.errors import InputError, Interrupted, LostProcess, printable

DONE, FAILED, BAD_INPUT, LOST = 0, 1, 2, 75  # exit codes; 128 + n: stopped by signal n
STARTED = "started on "
KILLED = -9
TAIL = 20_000  # bytes: enough for the last lines of a log


def run_logged(work: Work) -> int:
    """Makes the call. From now on the output of this process goes to the log. Returns the exit code."""
    work.log.parent.mkdir(parents=True, exist_ok=True)
    with work.log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    now = datetime.now().isoformat(sep=" ", timespec="seconds")
    # Written at once: until now, Ray and Slurm may have replaced sys.stderr.
    os.write(2, f"{STARTED}{socket.gethostname()}, process {os.getpid()}, {now}\n".encode())
    try:
        work.call()
    except InputError as error:
        return _ended(f"error: {printable(error)}", LOST if isinstance(error, LostProcess) else BAD_INPUT)
    except Interrupted as stopped:
        return _ended(printable(stopped), 128 + stopped.signal_number)
    except KeyboardInterrupt:
        return _ended("stopped", 130)
    except Exception:
        return _ended(traceback.format_exc(), FAILED)
    return DONE


def _ended(text: str, code: int) -> int:
    sys.stdout.flush()
    os.write(2, f"{text.strip()}\n".encode(errors="backslashreplace"))
    return code


def failure_reason(log: Path, exit_code: int | None) -> str:
    """The last line of a failed job's log, without "error: "."""
    last = last_line(log)
    if last and not last.startswith(STARTED) and exit_code != KILLED:
        return f"{printable(last.removeprefix('error: '))} ({log})"
    end = "was killed, perhaps because memory ran out" if exit_code == KILLED else f"ended with exit code {exit_code}"
    return f"its process {end} ({log})"


def last_line(log: Path) -> str:
    """The last line of a log that is not empty; "" without a log."""
    return next((line.strip() for line in reversed(_tail(log, 0)) if line.strip()), "")


def machine_of(log: Path, since: int = 0) -> str:
    """The machine on which a job last started, from its log after so many bytes; "" if it has not started since."""
    started = [line for line in _tail(log, since) if line.startswith(STARTED)]
    return started[-1].removeprefix(STARTED).split(",")[0] if started else ""


def size_of(log: Path) -> int:
    """The bytes of a log; 0 without one."""
    return log.stat().st_size if log.exists() else 0


def _tail(log: Path, since: int) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(since, size_of(log) - TAIL))
            return file.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return []
