"""A run folder: config.json, images.json, metrics.jsonl, state.pt, model.safetensors, environment.json.

Every file is written whole or not at all, but for metrics.jsonl, which grows: a row that was cut off is not read.
"""

import fcntl
import io
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tcm.config import differences
from tcm.errors import InputError

# Settings that do not change what is computed: a run may go on with other values of these.
FREE_KEYS = {"data.cache", "save_every", "device", "watch"}
# What runs of one line or group may differ in beside the seed: compiled networks round differently, and how often
# losses are written down changes no model.
ALIKE_KEYS = {*FREE_KEYS, "compile", "log_every"}


def is_free(key: str) -> bool:
    """Whether a setting, or the group that it belongs to, does not change what is computed."""
    return key in FREE_KEYS or key.split(".")[0] in FREE_KEYS


def write_atomically(file: Path, content: bytes) -> None:
    """Writes the file whole or not at all; a full disk leaves the previous content and one clear line.

    A link stays, and what it leads to is replaced.
    """
    place = Path(os.path.realpath(file))
    temporary = place.with_name(f".{place.name}.tmp")
    try:
        if not is_replaced(file):
            with file.open("ab") as handle:
                handle.write(content)
            return
        with temporary.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, place)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(
            f"{file} could not be written ({error.strerror}); what was there before is unharmed: "
            "free some space and repeat the command to go on"
        ) from error


def is_replaced(file: Path) -> bool:
    """Whether a new file takes the place of this one: devices, pipes and a command's own output are written to."""
    is_stream = os.path.abspath(file).startswith(("/dev/std", "/dev/fd/"))  # a plain file where output goes to one
    return not is_stream and (os.path.isfile(file) or not os.path.exists(file))


def holds_files(folder: Path) -> bool:
    """Whether the folder holds more than a lock and what a killed process was about to write."""
    return any(not (name == ".lock" or (name[0] == "." and name.endswith(".tmp"))) for name in os.listdir(folder))


def read_json(file: Path) -> Any:
    """The parsed file; a missing or damaged one is the user's to know."""
    try:
        return json.loads(file.read_text())
    except FileNotFoundError as error:
        found = f"{file.parent} is no run folder: it has no {file.name}"
        raise InputError(f"{found}; {run_to_name(file.parent)}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is damaged ({error}); restore it or start a new run in another --out") from error


def run_to_name(folder: Path) -> str:
    """What to give instead of a folder that holds no run; the --out of tcm fit holds two."""
    inside = [folder / name for name in ("classifier", "mechanisms") if (folder / name / "config.json").is_file()]
    return f"name {' or '.join(map(str, inside))}" if inside else "name the --out of a run"


def make_folder(folder: Path) -> None:
    """Makes the folder of an --out, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder} cannot be made ({error.strerror}); choose another folder") from error


def lock(folder: Path) -> io.TextIOWrapper:
    """Keeps other processes out of the folder until the file that comes back is closed."""
    try:
        held = (folder / ".lock").open("w")
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(f"--out {folder} is in use by another process; wait for it or choose another") from error
    except OSError as error:
        raise InputError(f"--out {folder} cannot be written ({error.strerror}); choose another folder") from error
    return held


class Run:
    """One training run on disk. Whoever opens it for training holds its lock."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.config_file = folder / "config.json"
        self.metrics_file = folder / "metrics.jsonl"
        self.state_file = folder / "state.pt"
        self.model_file = folder / "model.safetensors"
        self.environment_file = folder / "environment.json"
        self.images_file = folder / "images.json"
        self._lock: io.TextIOWrapper | None = None

    @property
    def finished(self) -> bool:
        """The model is written last, so its file means that the run is whole."""
        return self.model_file.exists()

    @property
    def exists(self) -> bool:
        """Whether a run was started in this folder."""
        try:
            return self.config_file.exists()
        except OSError as error:
            raise InputError(f"{self.folder} cannot be read ({error.strerror}); check its permissions") from error

    def start(self, config: dict[str, Any]) -> None:
        """Creates the folder, or checks that it holds a run of the same configuration; takes its lock."""
        make_folder(self.folder)
        if not self.exists and holds_files(self.folder):
            raise InputError(f"--out {self.folder} holds other files and no run; choose a new or empty folder")
        self._lock = lock(self.folder)
        if self.exists:
            self.require_same(config)
        else:
            write_atomically(self.config_file, json.dumps(config, indent=2).encode())

    def require_same(self, config: dict[str, Any]) -> None:
        """An error unless this run has that configuration, but for what does not change its result."""
        found = differences(read_json(self.config_file), config)
        changed = [line for line in found if not is_free(line.split(": ")[0])]
        if changed:
            raise InputError(
                f"--out {self.folder} holds a run with another configuration ({'; '.join(changed)}); "
                "repeat that run's options or choose another folder"
            )

    def require_images(self, fingerprints: list[str]) -> None:
        """An error if steps were taken on other images than these; a run without any notes which they are."""
        if not (self.state_file.exists() and self.images_file.exists()):
            write_atomically(self.images_file, json.dumps(fingerprints).encode())
        elif read_json(self.images_file) != fingerprints:
            found = f"{self.folder} was begun with other images than its data holds now"
            raise InputError(f"{found}; restore them or choose another --out")

    def images(self) -> list[str] | None:
        """The fingerprints of both domains' images that steps were taken on; None where there is no note of them."""
        return read_json(self.images_file) if self.images_file.exists() else None

    def take_back_start(self) -> None:
        """Leaves no trace of a run that has saved nothing, so that the corrected command may use the folder."""
        if self.state_file.exists() or self.metrics_file.exists():
            return
        for file in (self.config_file, self.images_file, self.environment_file, self.folder / ".lock"):
            file.unlink(missing_ok=True)

    def save_state(self, state: dict[str, Any]) -> None:
        """The checkpoint from which training goes on."""
        # Through memory, because torch turns a full disk into an error of its own.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomically(self.state_file, buffer.getvalue())

    def load_state(self, device: torch.device) -> dict[str, Any] | None:
        """The last checkpoint, or None where there is none yet."""
        if not self.state_file.exists():
            return None
        try:
            return torch.load(self.state_file, map_location=device, weights_only=True)
        except Exception as error:  # torch names many reasons; to the user they are one
            raise InputError(
                f"{self.state_file} is damaged and cannot be continued from; delete it to start this run again"
            ) from error

    def save_model(self, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Everything that `predict` needs in one file: the weights, and in its metadata what they are."""
        # One key of metadata: with several their order, and so the file, would differ from run to run.
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_atomically(self.model_file, safetensors.torch.save(whole, {"tcm": json.dumps(about)}))

    def load_model(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights of a finished run and what they are."""
        with self._opened_model() as file:
            return {name: file.get_tensor(name) for name in file.keys()}, _about(file)  # noqa: SIM118

    def about_model(self) -> dict[str, Any]:
        """What the weights of a finished run are, without reading them."""
        with self._opened_model() as file:
            return _about(file)

    @contextmanager
    def _opened_model(self) -> Iterator[Any]:
        # The model's file is enough: it may have been taken away from its run.
        if not self.exists and not self.finished:
            found = f"{self.folder} is no run folder: it has no config.json and no model.safetensors"
            raise InputError(f"{found}; {run_to_name(self.folder)}")
        if not self.finished:
            raise InputError(f"{self.folder} is not finished; repeat its command to go on")
        try:
            with safetensors.safe_open(self.model_file, framework="pt") as file:
                yield file
        except Exception as error:
            raise InputError(f"{self.model_file} is damaged; delete it and repeat the train command") from error

    def append_metrics(self, row: dict[str, float]) -> None:
        """Adds a row to metrics.jsonl."""
        try:
            with self.metrics_file.open("a") as handle:
                handle.write(json.dumps(row) + "\n")
        except OSError as error:
            raise InputError(f"{self.metrics_file} could not be written ({error.strerror}); free some space") from error

    def metrics(self) -> list[dict[str, float]]:
        """Every whole row; a line cut off by a crash, or damaged, is left out."""
        if not self.metrics_file.exists():
            return []
        rows = []
        for line in self.metrics_file.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                rows.append(json.loads(line))
        return [row for row in rows if isinstance(row, dict) and "step" in row]

    def forget_metrics_after(self, step: int) -> None:
        """Drops the rows of steps that will be taken again."""
        rows = [row for row in self.metrics() if row["step"] <= step]
        write_atomically(self.metrics_file, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def write_environment(self, device: str) -> None:
        """What this run was made with, for whoever wants to repeat it."""
        write_atomically(self.environment_file, json.dumps(environment(device), indent=2).encode())


def _about(file: Any) -> dict[str, Any]:
    return json.loads((file.metadata() or {})["tcm"])


def environment(device: str) -> dict[str, Any]:
    """Versions, commit, device and command of this process."""
    packages = ("tcm", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "scikit-learn")
    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or platform.machine()
    return {
        "command": shlex.join(["tcm", *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        **{package: _version(package) for package in packages},
        "platform": platform.platform(),
        "device": device,
        "device_name": name,
        "threads": torch.get_num_threads(),
    }


def commit() -> str | None:
    """The git commit of this code, marked "+" when it was changed since; outside a checkout what TCM_COMMIT says."""
    if os.environ.get("TCM_COMMIT"):
        return os.environ["TCM_COMMIT"]
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=True, timeout=20)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
