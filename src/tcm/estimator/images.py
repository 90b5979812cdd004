"""A method on images: they are packed into a temporary folder, in which the stages of a fit run."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tcm.classifier.inputs import Pixels, separate_images, stored_pixels
from tcm.classifier.load import Classifier, load_classifier
from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.config import to_json, with_settings
from tcm.data.store import ImageStore, pack_arrays
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError
from tcm.estimator.samples import Labels
from tcm.mechanisms.load import TrainedMechanisms, load_mechanisms
from tcm.mechanisms.train import MechanismsConfig, bank_config, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.methods import METHODS
from tcm.nn.backbone import BackboneConfig
from tcm.pipeline.config import StageOne
from tcm.pipeline.plan import (
    MECHANISM_BATCH,
    MECHANISM_STEPS,
    PEEK,
    SMALL_K,
    SMALL_MECHANISM_STEPS,
    SMALL_STEPS,
    STEPS,
    WITH_MECHANISMS,
    WITHOUT,
    data_for_sides,
    epochs_in_steps,
)
from tcm.training.device import Device
from tcm.training.run_config import require_valid_numbers
from tcm.training.run_folder import Run

Sample = Path | Image.Image | Pixels


class ImageSettings(NamedTuple):
    """The settings of an estimator, as far as images need them."""

    name: str  # of the method
    settings: Mapping[str, Any]
    steps: int | None
    batch: int
    k: int | None
    data: Mapping[str, Any] | DataConfig
    backbone: Mapping[str, Any] | BackboneConfig
    mechanisms: Mapping[str, Any] | StageOne
    seed: int
    device: Device
    quiet: bool


class FittedImages(NamedTuple):
    """A trained classifier, and the description that its file has."""

    classifier: Classifier
    about: dict[str, Any]


def separate(images: Any, count: int) -> Sequence[Sample]:
    """The single images of X; an error unless there are `count`."""
    found = separate_images(images, "X")
    if len(found) != count:
        raise InputError("X", f"has {len(found)} images, but `y` has {count} labels; give one label for each image")
    return found


def fit_images(samples: Sequence[Sample], labels: Labels, given: ImageSettings) -> FittedImages:
    """Trains the method on images, with the mechanisms that it needs. Wrong settings are found before the work."""
    start = with_settings(TrainConfig(method=METHODS["erm"]()), {"data": given.data, "backbone": given.backbone})
    data = data_for_sides(start.data, shorter_sides(samples))
    name, k = method_and_mechanisms(given.name, given.k, data.is_small)
    method = with_settings(METHODS[name].for_images(data.is_small), given.settings, "settings")
    require_valid_numbers(to_json(method), "settings")
    first = with_settings(StageOne(bank=bank_config("paper", data.is_small)), _fields(given.mechanisms), "mechanisms")
    config = TrainConfig(method=method, data=data, backbone=start.backbone, seed=given.seed, device=given.device)
    config.resolved()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        task = packed(samples, labels, data, folder)
        trained = train_stage_one(config, first, k, task, folder / "mechanisms", given.quiet) if k else None
        batch = min(given.batch, *map(len, task))
        usual = epochs_in_steps(max(map(len, task)), batch, *(SMALL_STEPS if data.is_small else STEPS))
        steps = (usual if method.trains else 1) if given.steps is None else given.steps
        made = folder / "mechanisms" if k else None
        config = replace(config, steps=steps, evaluate_every=steps, batch=batch, mechanisms=made)
        train_classifier(name, config, folder / "run", given.quiet, task, trained)
        return FittedImages(load_classifier(folder / "run", given.device), Run(folder / "run").about_model())


def method_and_mechanisms(name: str, k: int | None, small: bool) -> tuple[str, int]:
    """The method that is trained, and the number of its mechanisms; `tcm` without mechanisms is `tcm-control`."""
    config = METHODS[name]
    if not config.uses_counterfactuals:
        if k:
            raise InputError("k", f"is {k}, but {name} uses no mechanisms; leave it out")
        return name, 0
    usual = SMALL_K if small or name != WITH_MECHANISMS else 0
    k = (config.number_of_mechanisms or usual) if k is None else k
    if k == 0 and name == WITH_MECHANISMS:
        return WITHOUT, 0
    if k < 1:
        raise InputError("k", f"is {k}, but {name} uses mechanisms; give 1 or more")
    return name, k


def train_stage_one(
    config: TrainConfig[Any], stage: StageOne, k: int, task: Task, folder: Path, quiet: bool
) -> TrainedMechanisms:
    """Trains mechanisms, writes the counterfactuals of all images, and returns the mechanisms."""
    batch = min(MECHANISM_BATCH, *map(len, task)) if stage.batch is None else stage.batch
    usual = epochs_in_steps(max(map(len, task)), batch, *MECHANISM_STEPS)
    steps = (SMALL_MECHANISM_STEPS if config.data.is_small else usual) if stage.steps is None else stage.steps
    settings = {"data": config.data, "seed": config.seed, "device": config.device, "bank": stage.bank}
    train_mechanisms(MechanismsConfig(steps=steps, batch=batch, k=k, **settings), folder, quiet, task)
    trained = load_mechanisms(folder)
    transport(folder, device=config.device, quiet=quiet, task=task, trained=trained)
    trained.bank.to("cpu")
    return trained


def _fields(settings: Mapping[str, Any] | StageOne) -> Mapping[str, Any]:
    return settings if isinstance(settings, Mapping) else vars(settings)


def shorter_sides(samples: Sequence[Sample]) -> list[int]:
    """The shorter side of some images; without files that cannot be read, which are named later."""
    some = samples[:: max(1, len(samples) // PEEK)]
    sizes = (_size(sample) for sample in some)
    return [min(size) for size in sizes if size is not None]


def _size(sample: Sample) -> tuple[int, ...] | None:
    if isinstance(sample, np.ndarray):
        return sample.shape[:2]
    if isinstance(sample, Image.Image):
        return sample.size
    try:
        with Image.open(sample) as image:
            return image.size
    except Exception:  # Pillow raises nearly anything on damaged bytes
        return None


def packed(samples: Sequence[Sample], labels: Labels, data: DataConfig, folder: Path) -> Task:
    """The images as the stores of both domains, resized. Without target samples, those of the source stand in."""
    pixels = np.stack([*stored_pixels(list(samples), data.sides[0])])
    names = [str(name) for name in labels.classes]
    source, target = (np.flatnonzero(labels.source == side) for side in (True, False))
    target = target if len(target) else source

    def store(name: str, rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> ImageStore:
        return pack_arrays(name, pixels[rows], numbers, names, [f"{row}.png" for row in rows], folder / name)

    unknown = np.full(len(target), -1)
    return Task(store("source", source, labels.numbers[source]), store("target", target, unknown))
