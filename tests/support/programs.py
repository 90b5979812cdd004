"""The program with several processes, as a test starts it, and what the system knows of its processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def start(words: Sequence[str]) -> subprocess.Popen[str]:
    """`tcm WORDS` with one thread in each process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "tcm", *words], env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)


def wait_for_step(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Waits until the run has logged this step."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        rows = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []
        if rows and json.loads(rows[-1])["step"] >= step:
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} never came: {process.communicate()}")


def children_of(process: int) -> list[int]:
    """The processes that this one has started."""
    files = Path(f"/proc/{process}/task").glob("*/children")  # of every thread
    return [int(word) for file in files for word in file.read_text().split()]


def is_alive(process: int) -> bool:
    """Whether the process has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
