"""The software, hardware and command that made a run, for those who want to repeat it."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from tcm import __version__


def environment(device: str, processes: int = 1) -> dict[str, Any]:
    """Versions, commit, device and command of this process, and with how many `processes` it trains."""
    packages = ("torch", "torchvision", "timm", "lightning-fabric", "numpy", "scikit-learn")
    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or platform.machine()
    return {
        "command": shlex.join(["tcm", *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "tcm": __version__,
        **{package: _version(package) for package in packages},
        "platform": platform.platform(),
        "device": device,
        "device_name": name,
        "processes": processes,
        "threads": torch.get_num_threads(),
    }


def commit() -> str | None:
    """The git commit of this code, with "+" if it was changed since; outside a checkout the value of TCM_COMMIT."""
    if os.environ.get("TCM_COMMIT"):
        return os.environ["TCM_COMMIT"]
    package = Path(__file__).parents[1]

    def git(*words: str) -> str:
        words = ("git", "-C", str(package), *words)
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
