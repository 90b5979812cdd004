"""What a run folder says about its run, read once and checked."""

import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tcm.errors import InputError
from tcm.mechanisms.train import KIND
from tcm.training.run_folder import Run, read_json

_ARRAYS = (
    "probabilities",
    "labels",
    "paths",
    "source_images",
    "source_labels",
    "target_images",
    "shown_index",
    "shown_images",
)


@dataclass(frozen=True)
class Evaluation:
    """evaluation.json and evaluation.npz: the reported model on every target image."""

    summary: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def classes(self) -> list[str]:
        """The class names, by index."""
        return self.summary["classes"]

    @property
    def accuracy(self) -> float | None:
        """The share of labelled target images that are right; None where nothing is labelled."""
        return self.summary["target"]["accuracy"]

    @property
    def mean_class_accuracy(self) -> float | None:
        """The mean over classes of the accuracy within each; None where nothing is labelled."""
        return self.summary["target"]["mean_class_accuracy"]

    @property
    def variants(self) -> dict[str, dict[str, float]]:
        """The accuracies of the prediction variants, by name; runs of older versions have none."""
        return self.summary["target"].get("variants", {})

    @cached_property
    def predictions(self) -> np.ndarray:
        """The most probable class of each target image, [n]."""
        return self.arrays["probabilities"].argmax(axis=1)

    @cached_property
    def confidence(self) -> np.ndarray:
        """The probability of the predicted class, [n]."""
        return self.arrays["probabilities"].max(axis=1)


@dataclass(frozen=True)
class Record:
    """One run folder in memory; `evaluation` is None until a run of a method has finished, and in a run of stage 1."""

    folder: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    history: list[dict[str, Any]]
    evaluation: Evaluation | None
    has_model: bool

    @property
    def is_mechanisms(self) -> bool:
        """Whether this is a run of stage 1."""
        return self.config.get("kind") == KIND

    @property
    def finished(self) -> bool:
        """Whether there is a result to show."""
        return self.has_model if self.is_mechanisms else self.evaluation is not None

    @property
    def method(self) -> str:
        """The name of the method, as on the command line."""
        return KIND if self.is_mechanisms else self.config["method_name"]

    @property
    def task(self) -> tuple[str, str]:
        """The names of the source and the target domain."""
        if self.evaluation:
            return self.evaluation.summary["source"]["name"], self.evaluation.summary["target"]["name"]
        return _domain(self.config["data"], "source"), _domain(self.config["data"], "target")

    @property
    def steps_done(self) -> int:
        """The last step that metrics.jsonl knows of."""
        return max((row["step"] for row in self.history), default=0)

    @property
    def seconds(self) -> float:
        """Time spent in training steps, over all the sittings of the run."""
        return sum(row.get("seconds", 0.0) for row in self.history)

    @property
    def source_accuracy(self) -> float | None:
        """The accuracy on the source at the reported step, else the last one logged; None where there is none."""
        found = {row["step"]: row["source/accuracy"] for row in self.history if "source/accuracy" in row}
        reported = self.evaluation.summary["step"] if self.evaluation else None
        return found.get(reported, found[max(found)]) if found else None


def _domain(data: dict[str, Any], side: str) -> str:
    """The name of a domain by the configuration alone, in whichever form it gives the data."""
    where = data[side] or data.get(f"{side}_dir") or data.get(f"{side}_list")
    return Path(where).stem if where else f"{data.get('benchmark')} {side}"


def read_record(folder: Path) -> Record:
    """The run in `folder`. What cannot be used raises an `InputError` that names the file and the remedy."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the --out folder of a run")
    run = Run(folder)
    kind = _with_keys(run.config_file).get("kind")
    named = () if kind == KIND else ("method_name",)
    config = _with_keys(run.config_file, *named, "steps", "seed", "data.source", "data.target")
    environment = _with_keys(run.environment_file) if run.environment_file.exists() else {}
    history = [row for row in run.metrics() if isinstance(row, dict) and isinstance(row.get("step"), int)]
    return Record(folder, config, environment, history, _evaluation(folder), run.finished)


def _evaluation(folder: Path) -> Evaluation | None:
    file = folder / "evaluation.json"
    if not file.exists():
        return None
    domains = ("source.name", "source.images", "target.name", "target.images", "target.labelled")
    scores = ("target.accuracy", "target.mean_class_accuracy")
    summary = _with_keys(file, "selection", "step", "seconds", "classes", *domains, *scores)
    return Evaluation(summary, _arrays(folder / "evaluation.npz", len(summary["classes"])))


def _with_keys(file: Path, *keys: str) -> dict[str, Any]:
    """The JSON object in `file`, which must hold every dotted key."""
    content = read_json(file)
    remedy = "it is not from a tcm train or tcm mechanisms run; name such a run or repeat its command"
    if not isinstance(content, dict):
        raise InputError(f"{file} holds no JSON object: {remedy}")
    for key in keys:
        value: Any = content
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                raise InputError(f"{file} has no {key}: {remedy}")
            value = value[part]
    return content


def _arrays(file: Path, classes: int) -> dict[str, np.ndarray]:
    remedy = f"repeat the evaluation with tcm evaluate {file.parent}"
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in _ARRAYS}
    except FileNotFoundError as error:
        raise InputError(f"{file} is missing; {remedy}") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{file} is damaged ({error}); {remedy}") from error
    images = len(arrays["labels"])
    if arrays["probabilities"].shape != (images, classes) or len(arrays["paths"]) != images:
        shape = arrays["probabilities"].shape
        raise InputError(f"{file} holds probabilities {shape} for {images} labels and {classes} classes; {remedy}")
    return arrays
