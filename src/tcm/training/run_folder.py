"""A run folder: its settings, inputs, metrics, checkpoint and model; docs/run-folder.md lists the files.

Every file is written whole or not at all. Only metrics.jsonl grows: a row that was cut off is not read.
"""

import io
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from filelock import AcquireReturnProxy
from torch import Tensor

from tcm import __version__
from tcm.config import differences
from tcm.errors import InputError, printable
from tcm.training.environment import environment
from tcm.training.fence import Fence
from tcm.training.files import holds_files, lock, make_folder, write_atomically
from tcm.training.processes import ALONE, Processes

FIT_FILE = "fit.json"  # marks the folder of a fit, which has several runs below it
FORMAT = 3  # of run folders; with another number, older folders are refused
WRITTEN_BY = {"tcm": __version__, "format": FORMAT}  # what config.json and model.safetensors say of their writer
# Why a finished run, or one that is half done, cannot be continued to a larger number of steps.
NOT_EXTENDED = "learning rates and loss weights follow the share of the steps that are done, so it cannot be extended"
# Settings that do not change the result: a run may be continued with other values of these.
CHANGEABLE_KEYS = {"data.cache", "save_every", "device", "devices", "watch"}
# Settings in which runs of one configuration may differ, besides the seed: compiled networks round differently, and
# how often losses are logged changes no model.
IGNORED_KEYS = {*CHANGEABLE_KEYS, "compile", "log_every"}


def is_changeable(key: str, others: Collection[str] = ()) -> bool:
    """Whether a run may be continued with another value of this setting, or of the group that it belongs to."""
    return any(name in CHANGEABLE_KEYS or name in others for name in (key, key.split(".")[0]))


def read_json(file: Path) -> Any:
    """The content of a JSON file in a run folder; an error if it is missing or damaged."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        found = f"{file.parent} is not a run folder: it has no {file.name}"
        raise InputError(f"{found}; {run_to_name(file.parent)}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is damaged ({error}); restore it or start a new run in another `out`") from error


def run_to_name(folder: Path) -> str:
    """What to give instead of a folder that is not of a run; it may hold some."""
    inside = sorted(file.parent for file in folder.glob("*/config.json"))[:3]
    return f"name {' or '.join(map(str, inside))}" if inside else "name the `out` of a run"


def chosen_run(folder: Path) -> Path:
    """The run that a fit chose, if this is the folder of one; otherwise the folder itself."""
    if not os.path.isfile(folder / FIT_FILE):
        return folder
    chosen = read_json(folder / FIT_FILE).get("chosen")
    if chosen is None:
        raise InputError(f"{printable(folder)} is not finished; repeat its command to continue")
    return folder / chosen


def mechanisms_run(folder: Path) -> Path:
    """The run of stage 1 of a fit, if this is the folder of one; otherwise the folder itself."""
    if not os.path.isfile(folder / FIT_FILE):
        return folder
    if not (folder / "mechanisms").is_dir():
        raise InputError(f"{printable(folder)} has no mechanisms; repeat tcm fit with `k=4` in another `out`")
    return folder / "mechanisms"


def with_paths(names: Any, paths: Any) -> Any:
    """The JSON value `names` with the paths of the JSON value `paths` where it has only their last part."""
    if isinstance(names, dict) and isinstance(paths, dict):
        return {key: with_paths(value, paths.get(key)) for key, value in names.items()}
    if isinstance(names, list) and isinstance(paths, list):
        return [with_paths(*pair) for pair in zip(names, paths, strict=True)] if len(names) == len(paths) else names
    return paths if isinstance(names, str) and isinstance(paths, str) and Path(paths).name == names else names


def require_format(written_by: Any, path: Path) -> None:
    """An error if another version of tcm wrote `path`, in a format that this version cannot read."""
    found = written_by if isinstance(written_by, dict) else {}
    if found.get("format") == FORMAT:
        return
    version = f"tcm {found.get('tcm')} (run format {found.get('format')})" if found else "a version of tcm before 0.2"
    this = f"this is tcm {__version__} (run format {FORMAT})"
    raise InputError(f"{path} was written by {printable(version)}, but {this}; use that version or a new `out`")


class Run:
    """One training run on disk. A process that trains holds its lock and its fence, and writes only while it does.

    If several processes train together, only the first of them locks and writes. The others call the same methods.
    """

    def __init__(self, folder: Path, processes: Processes = ALONE):
        self.folder, self.processes = folder, processes
        self.config_file = folder / "config.json"
        self.metrics_file = folder / "metrics.jsonl"
        self.state_file = folder / "state.pt"
        self.model_file = folder / "model.safetensors"
        self.environment_file = folder / "environment.json"
        self.inputs_file = folder / "inputs.json"
        self.judgement_file = folder / "mechanisms.json"
        self._made = False  # whether this object made the folder
        self._lock: AcquireReturnProxy | None = None
        self._fence: Fence | None = None

    @classmethod
    def of_model(cls, path: Path) -> "Run":
        """The run of a folder, or of the file of a model, which may have another name and lie outside its folder."""
        if path.suffix != ".safetensors" or not os.path.isfile(path):
            return cls(path)
        run = cls(path.parent)
        run.model_file = path
        return run

    @property
    def finished(self) -> bool:
        """Whether the run is complete: the model is written last."""
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
        self._made = not os.path.isdir(self.folder)
        make_folder(self.folder)
        if not self.exists and holds_files(self.folder):
            raise InputError("out", f"{self.folder} is not empty and holds no run; choose a new or empty folder")
        self._lock = lock(self.folder)
        with self.released_on_error():
            if self.exists:
                self.require_same_config(config)
            if not self.finished:
                self._fence = Fence(self.folder)
            if not self.exists:
                content = {"written_by": WRITTEN_BY, **config}
                self.write(self.config_file, json.dumps(content, indent=2).encode())

    def write(self, file: Path, content: bytes) -> None:
        """Writes a file of the run whole or not at all; an error if another process has taken the folder over.

        Of several processes of the run, only the first writes.
        """
        if self.processes.first:
            self.require_held()
            write_atomically(file, content)

    def require_held(self) -> None:
        """An error if another process has taken the folder over since this one started in it."""
        if self._fence:
            self._fence.require_held()

    def release(self) -> None:
        """Releases the lock. This also happens when the object is deleted and when the process ends."""
        if self._lock:
            self._lock.lock.release()
            self._lock = None

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Releases the lock if the block fails: a notebook keeps the objects of a failed call, and so their lock."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def undo_start(self) -> None:
        """Removes the files of a run that has saved nothing, so that a corrected command may use the folder, and the
        folder itself if it is new."""
        if self.state_file.exists() or self.metrics_file.exists() or not (self._fence and self._fence.held):
            return  # it has saved something, or the files are those of a successor
        written = (self.config_file, self.inputs_file, self.judgement_file, self.environment_file, self._fence.file)
        for file in written:
            file.unlink(missing_ok=True)
        with suppress(PermissionError):  # Windows: there the file is open, and goes when the lock is released
            (self.folder / ".lock").unlink(missing_ok=True)
        self.release()
        if self._made:
            with suppress(OSError):  # another process has written into it
                self.folder.rmdir()

    def config(self) -> dict[str, Any]:
        """The configuration that the run was started with; an error if another version of tcm wrote it."""
        content = read_json(self.config_file)
        if not isinstance(content, dict):
            found = f"{self.config_file} is damaged (it does not hold a JSON object)"
            raise InputError(f"{found}; restore it or start a new run in another `out`")
        require_format(content.pop("written_by", None), self.folder)
        return content

    def config_of_model(self, about: dict[str, Any]) -> dict[str, Any]:
        """The configuration of the model that `about` describes: with the paths of config.json or, where the file was
        moved out of its run folder, with names in their place."""
        # The config.json of a folder for the Hugging Face Hub is another one, which no run has written.
        of_a_run = self.exists and "written_by" in read_json(self.config_file)
        return with_paths(about["config"], self.config()) if of_a_run else about["config"]

    def require_same_config(self, config: dict[str, Any]) -> None:
        """An error unless this run has that configuration; settings that do not change its result may differ."""
        found = differences(self.config(), config)
        # In stage 1 the backbone only measures.
        measuring = ("backbone",) if config.get("kind") == "mechanisms" else ()
        changed = [line for line in found if not is_changeable(line.split(": ")[0], measuring)]
        if {line.split(": ")[0] for line in changed} in ({"steps"}, {"steps", "evaluate_every"}):
            raise self.other_length(config["steps"])
        if changed:
            reason = f"{self.folder} holds a run with another configuration ({'; '.join(changed)})"
            raise InputError("out", f"{reason}; repeat that run's options or choose another folder")

    def other_length(self, steps: int) -> InputError:
        """Why a run cannot be continued to another number of steps."""
        had = self.config()["steps"]
        found = f"is {steps}, but {self.folder} holds a run of {had} steps: {NOT_EXTENDED}"
        return InputError("steps", f"{found}; choose another `out`, or give `steps={had}`")

    def require_inputs(self, images: list[str], mechanisms: str | None = None) -> None:
        """An error if steps were taken with other inputs than these: fingerprints of both domains' images, and a hash
        of the mechanisms. A run without steps notes them."""
        if not (self.state_file.exists() and self.inputs_file.exists()):
            self.write(self.inputs_file, json.dumps({"images": images, "mechanisms": mechanisms}).encode())
            if self.processes.first:
                self.judgement_file.unlink(missing_ok=True)  # of other inputs
            return
        noted = read_json(self.inputs_file)
        if noted["images"] != images:
            found = f"{self.folder} was started with other images than its data holds now"
            raise InputError(f"{found}; restore them or choose another `out`")
        if noted["mechanisms"] != mechanisms:
            found = f"holds others than {self.folder} was started with"
            raise InputError("mechanisms", f"{found}; restore them or choose another `out`")

    def images(self) -> list[str] | None:
        """The fingerprints of both domains' images that steps were taken on; None if they were not noted."""
        return read_json(self.inputs_file)["images"] if self.inputs_file.exists() else None

    def note_judgement(self, judgement: dict[str, Any]) -> None:
        """Writes which mechanisms the run uses and why it does not use the others, for the whole run."""
        self.write(self.judgement_file, json.dumps(judgement, indent=2).encode())

    def judgement(self) -> dict[str, Any] | None:
        """What `note_judgement` wrote; None before it."""
        return read_json(self.judgement_file) if self.judgement_file.exists() else None

    def save_state(self, state: dict[str, Any]) -> None:
        """Writes the checkpoint from which training continues."""
        if not self.processes.first:
            return
        # Through memory, because torch turns a full disk into an error of its own.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.write(self.state_file, buffer.getvalue())

    def load_state(self, device: torch.device) -> dict[str, Any] | None:
        """The last checkpoint, or None if there is none yet."""
        if not self.state_file.exists():
            return None
        try:
            return torch.load(self.state_file, map_location=device, weights_only=True)
        except Exception as error:  # torch has many reasons; for the user they are one
            raise InputError(
                f"{self.state_file} is damaged and cannot be continued from; delete it to start this run again"
            ) from error

    def save_model(self, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Everything that `predict` needs in one file: the weights, and their description as metadata."""
        if not self.processes.first:
            return
        # One key of metadata: with several their order, and so the file, would differ from run to run.
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        metadata = {"tcm": json.dumps({"written_by": WRITTEN_BY, **about})}
        self.write(self.model_file, safetensors.torch.save(whole, metadata))

    def load_model(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights of a finished run and their description; an error if another version of tcm wrote them."""
        with self._opened_model() as (file, about):
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118

    def about_model(self) -> dict[str, Any]:
        """The description of a finished run's weights, without reading the weights."""
        with self._opened_model() as (_, about):
            return about

    @contextmanager
    def _opened_model(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        # The file of the model is enough: it may have been moved out of its run folder.
        if not self.exists and not self.finished:
            found = f"{self.folder} is not a run folder: it has no config.json and no model.safetensors"
            raise InputError(f"{found}; {run_to_name(self.folder)}")
        if not self.finished:
            raise InputError(f"{self.folder} is not finished; repeat its command to continue")
        try:
            with safetensors.safe_open(self.model_file, framework="pt") as file:
                about = json.loads((file.metadata() or {})["tcm"])
                require_format(about.pop("written_by", None), self.model_file)
                yield file, about
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{self.model_file} is damaged; delete it and repeat the train command") from error

    def append_metrics(self, row: dict[str, float]) -> None:
        """Adds a row to metrics.jsonl."""
        if not self.processes.first:
            return
        self.require_held()
        try:
            with self.metrics_file.open("a") as handle:
                handle.write(json.dumps(row) + "\n")
        except OSError as error:
            raise InputError(f"{self.metrics_file} could not be written ({error.strerror}); free some space") from error

    def metrics(self) -> list[dict[str, float]]:
        """Every complete row; a line that was cut off by a crash, or is damaged, is left out."""
        if not self.metrics_file.exists():
            return []
        rows = []
        for line in self.metrics_file.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                rows.append(json.loads(line))
        return [row for row in rows if isinstance(row, dict) and "step" in row]

    def forget_metrics_after(self, step: int) -> None:
        """Drops the rows of steps that will be taken again."""
        if not self.processes.first:
            return
        rows = [row for row in self.metrics() if row["step"] <= step]
        self.write(self.metrics_file, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def write_environment(self, device: str) -> None:
        """Writes the versions, the device and the command of this process, for those who want to repeat the run."""
        self.write(self.environment_file, json.dumps(environment(device, self.processes.size), indent=2).encode())
