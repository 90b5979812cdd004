"""A suite of two methods that is over in seconds, as a process or in this one."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from tcm.cli.app import main

OPTIONS = ["digits", "--methods", "erm,tcm", "--seeds", "1", "--ks", "", "--steps", "4", "--device", "cpu"]
OPTIONS += ["--k", "2", "--mechanisms.steps", "2", "--batch", "8"]


def suite(out: Path, *more: str) -> subprocess.Popen[str]:
    """Without figures, most of whose time is t-SNE."""
    words = [sys.executable, "-m", "tcm", *words_of(out, *more)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def words_of(out: Path, *more: str) -> list[str]:
    return ["bench", *OPTIONS, "--no-report", "-q", "--out", str(out), *more]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    said, complained = process.communicate(timeout=300)
    return process.returncode, said, complained


def repeated(out: Path, *more: str) -> tuple[int, str, str]:
    """What the command comes to where no signal is sent to it: in this process, which has imported everything."""
    return said_by(words_of(out, *more))


def said_by(words: list[str]) -> tuple[int, str, str]:
    """The exit code of a command in this process, and what it prints to both streams."""
    with redirect_stdout(io.StringIO()) as said, redirect_stderr(io.StringIO()) as complained:
        code = main(words)
    return code, said.getvalue(), complained.getvalue()
