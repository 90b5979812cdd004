"""A suite of two methods that is over in seconds, as a process."""

import subprocess
import sys
from pathlib import Path

OPTIONS = ["digits", "--methods", "erm,tcm", "--seeds", "1", "--ks", "", "--steps", "4", "--device", "cpu"]
OPTIONS += ["--mechanisms.k", "2", "--mechanisms.steps", "2", "--batch", "8"]


def suite(out: Path, *more: str) -> subprocess.Popen[str]:
    """Without figures, most of whose time is t-SNE."""
    words = [sys.executable, "-m", "tcm.cli", "bench", *OPTIONS, "--no-report", "-q", "--out", str(out), *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    said, complained = process.communicate(timeout=300)
    return process.returncode, said, complained
