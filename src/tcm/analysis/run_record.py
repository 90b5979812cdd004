"""A run folder in memory, read once and checked."""

import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tcm.errors import InputError, printable
from tcm.mechanisms.train import KIND
from tcm.results.identity import RunFacts
from tcm.results.store import number_of_mechanisms, portable_config
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
_ON_SOURCE = ("on_source", "source_classes", "held_out")  # runs of earlier versions have none of them


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
        """The share of labelled target images that are right; None without labels."""
        return self.summary["target"]["accuracy"]

    @property
    def mean_class_accuracy(self) -> float | None:
        """The mean over classes of the accuracy within each; None without labels."""
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


class DomainAccuracy(NamedTuple):
    """The accuracy of a run on one of its source domains."""

    name: str
    accuracy: float | None  # None if no image of this source was held out, but some of another


@dataclass(frozen=True)
class Record:
    """One run folder in memory; `evaluation` is None until a stage-2 run is finished, and in a run of stage 1."""

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
        return domain_name(self.config["data"], "source"), domain_name(self.config["data"], "target")

    @property
    def data(self) -> tuple[object, ...]:
        """Equal for runs on the same images, wherever these are: names and sizes of the domains, and the classes."""
        if self.evaluation is None:
            return self.task
        sizes = (self.evaluation.summary[side]["images"] for side in ("source", "target"))
        return (*self.task, *sizes, *self.evaluation.classes)

    @cached_property
    def facts(self) -> RunFacts:
        """What identifies the run."""
        config = portable_config(self.config)
        k = str(config.get("k", "")) if self.is_mechanisms else number_of_mechanisms(self.folder, config)
        return RunFacts(self.method, k, self.data, config)

    @property
    def steps_done(self) -> int:
        """The last step in metrics.jsonl."""
        return max((row["step"] for row in self.history), default=0)

    @property
    def seconds(self) -> float:
        """Time spent in training steps, over all processes that continued the run."""
        return sum(row.get("seconds", 0.0) for row in self.history)

    @property
    def held_out_accuracy(self) -> float | None:
        """The accuracy on source images that training did not see; None if there are none."""
        held_out = self.evaluation.arrays.get("held_out") if self.evaluation else None
        if self.evaluation is None or held_out is None or not held_out.any():
            return None
        arrays = self.evaluation.arrays
        return float((arrays["on_source"].argmax(axis=1) == arrays["source_classes"])[held_out].mean())

    @property
    def source_domains(self) -> list[DomainAccuracy]:
        """Each source if several were pooled, on held-out images if there are any; empty otherwise."""
        domains = self.evaluation.summary["source"].get("domains", []) if self.evaluation else []
        held_out = any(domain["held_out"] for domain in domains)
        key = "held_out_accuracy" if held_out else "accuracy"
        return [DomainAccuracy(domain["name"], domain[key]) for domain in domains]

    @property
    def source_accuracy(self) -> float | None:
        """The accuracy on all source images at the reported step, else the last one logged; None if none was logged."""
        found = {row["step"]: row["source/accuracy"] for row in self.history if "source/accuracy" in row}
        reported = self.evaluation.summary["step"] if self.evaluation else None
        return found.get(reported, found[max(found)]) if found else None


def domain_name(data: dict[str, Any], side: str) -> str:
    """The name of the source or target domain in a run's configuration of the data."""
    name, folder, file = data[side], data.get(f"{side}_dir"), data.get(f"{side}_list")
    if isinstance(several := name or folder or file, list):
        key = side if name else f"{side}_dir" if folder else f"{side}_list"
        return "+".join(domain_name({side: None, key: one}, side) for one in several)
    built_in = f"{data.get('benchmark')} {side}"
    return name or (Path(folder).name if folder else Path(file).stem if file else built_in)


def read_record(folder: Path) -> Record:
    """The run in `folder`. An `InputError` names the file that cannot be used and the remedy."""
    if not folder.is_dir():
        raise InputError(f"{printable(folder)} is not a folder; name the folder of a run")
    run = Run(folder)
    config = run.config()
    named = () if config.get("kind") == KIND else ("method_name",)
    _require_keys(run.config_file, config, *named, "steps", "seed", "data.source", "data.target")
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
    """The JSON object in `file`, which must have every dotted key."""
    content = read_json(file)
    _require_keys(file, content, *keys)
    return content


def _require_keys(file: Path, content: Any, *keys: str) -> None:
    remedy = "it was not written by tcm train or tcm mechanisms; name a run of one of them, or repeat its command"
    if not isinstance(content, dict):
        raise InputError(f"{printable(file)} is not a JSON object: {remedy}")
    for key in keys:
        value: Any = content
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                raise InputError(f"{printable(file)} has no {key}: {remedy}")
            value = value[part]


def _arrays(file: Path, classes: int) -> dict[str, np.ndarray]:
    remedy = f"repeat the evaluation with tcm evaluate {printable(file.parent)}"
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in (*_ARRAYS, *(name for name in _ON_SOURCE if name in stored))}
    except FileNotFoundError as error:
        raise InputError(f"{printable(file)} is missing; {remedy}") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{printable(file)} is damaged ({error}); {remedy}") from error
    images = len(arrays["labels"])
    if arrays["probabilities"].shape != (images, classes) or len(arrays["paths"]) != images:
        shape = arrays["probabilities"].shape
        found = f"probabilities {shape} for {images} labels and {classes} classes"
        raise InputError(f"{printable(file)} has {found}; {remedy}")
    return arrays
