"""What an estimate needs of a finished run: its predictions for both domains, read from evaluation.json and .npz."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcm.config import leaves
from tcm.errors import InputError, printable
from tcm.training.run_folder import IGNORED_KEYS, Run, chosen_run, read_json

_ARRAYS = ("probabilities", "paths", "on_source", "source_classes", "held_out")


@dataclass(frozen=True)
class RunPredictions:
    """The predictions of a finished run. Target labels are not among them."""

    folder: Path
    method: str
    seed: int
    settings: dict[str, Any]  # every setting but the seed and those that do not change the result
    task: tuple[str, str]  # names of the domains
    classes: list[str]
    target: NDArray[np.float32]  # [target images, classes], probabilities
    paths: NDArray[np.str_]  # [target images]
    source: NDArray[np.float32]  # [source images, classes], probabilities
    labels: NDArray[np.int64]  # [source images], their classes
    held_out: NDArray[np.bool_]  # [source images], which of them training did not see
    neighbours: dict[str, float | None]  # of `neighbour_agreements`

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The predicted class of each target image, [n]."""
        return self.target.argmax(axis=1)

    @property
    def source_shares(self) -> NDArray[np.float64]:
        """The share of each class among the source images, [classes]."""
        return np.bincount(self.labels, minlength=len(self.classes)) / len(self.labels)

    @property
    def target_shares(self) -> NDArray[np.float64]:
        """The share of each class among the predictions for the target, [classes]."""
        return np.bincount(self.predicted, minlength=len(self.classes)) / len(self.target)

    def same_data(self, other: "RunPredictions") -> bool:
        """Whether both runs predict the same target images and classes."""
        return self.classes == other.classes and np.array_equal(self.paths, other.paths)


def run_folder(run: Path) -> Path:
    """The folder of the finished run of stage 2 that `run` names, which may be the `out` of tcm fit."""
    folder = chosen_run(run)
    if not folder.is_dir():
        raise InputError(f"{printable(run)} is not a folder; name the folder of a run")
    if not (folder / "evaluation.json").exists():
        config = Run(folder).config()  # says so if it is not a run
        if "method_name" not in config:
            raise InputError(f"{printable(folder)} holds no classifier; name the folder (`out`) of a tcm train run")
        raise InputError(f"{printable(folder)} is not finished; repeat its command to continue")
    return folder


def read_predictions(run: Path) -> RunPredictions:
    """The predictions of a finished run. An `InputError` names the file that cannot be used and the remedy."""
    folder = run_folder(run)
    config, summary = Run(folder).config(), read_json(folder / "evaluation.json")
    arrays = _arrays(folder / "evaluation.npz")
    try:
        about: dict[str, Any] = {
            "method": config["method_name"],
            "seed": config["seed"],
            "settings": {key: value for key, value in leaves(config).items() if key not in {"seed", *IGNORED_KEYS}},
            "task": (summary["source"]["name"], summary["target"]["name"]),
            "classes": summary["classes"],
            "neighbours": summary["neighbours"],
        }
    except (KeyError, TypeError) as error:
        raise InputError(f"{printable(folder / 'evaluation.json')} has no {error}; {_remedy(folder)}") from error
    found = RunPredictions(
        folder=folder,
        target=arrays["probabilities"],
        paths=arrays["paths"],
        source=arrays["on_source"],
        labels=arrays["source_classes"],
        held_out=arrays["held_out"],
        **about,
    )
    _require_usable(found)
    return found


def _require_usable(found: RunPredictions) -> None:
    file, classes = printable(found.folder / "evaluation.npz"), len(found.classes)
    shapes = found.target.shape == (len(found.paths), classes), found.source.shape == (len(found.labels), classes)
    if not all(shapes) or found.held_out.shape != found.labels.shape:
        raise InputError(f"{file} does not fit its evaluation.json; {_remedy(found.folder)}")
    if not (np.isfinite(found.target).all() and np.isfinite(found.source).all()):
        raise InputError(f"{file} has predictions that are not finite; train again with a lower learning rate")


def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(file, allow_pickle=False) as stored:
            missing = [name for name in _ARRAYS if name not in stored.files]
            if missing:
                found = f"{printable(file)} has no predictions for the source: an earlier version wrote it"
                raise InputError(f"{found}; {_remedy(file.parent)}")
            return {name: stored[name] for name in _ARRAYS}
    except FileNotFoundError as error:
        raise InputError(f"{printable(file)} is missing; {_remedy(file.parent)}") from error
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{printable(file)} is damaged ({error}); {_remedy(file.parent)}") from error


def _remedy(folder: Path) -> str:
    return f"repeat the evaluation with tcm evaluate {printable(folder)}"
