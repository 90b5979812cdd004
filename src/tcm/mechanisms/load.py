"""Loads finished mechanisms: by themselves, or with their counterfactuals for stage 2."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from tcm.config import from_json
from tcm.data.task import Task
from tcm.errors import InputError, printable
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.counterfactual_store import open_counterfactuals, read_index
from tcm.mechanisms.pair import SIDES, Side
from tcm.mechanisms.train import KIND, MechanismsConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig
from tcm.training.run_folder import Run


class TrainedMechanisms(NamedTuple):
    """A finished run of stage 1."""

    config: MechanismsConfig
    bank: MechanismBank


class LoadedMechanisms(NamedTuple):
    """The mechanisms of a finished and transported run, for a task on the same images."""

    transported: tuple[Tensor, Tensor]  # uint8 [n, k, size, size, 3], memory-mapped: M_i(x_s) and M_i^-1(x_t)
    inverse: FrozenGenerators  # M_1^-1 to M_k^-1, on the CPU
    generator: GeneratorConfig
    weights: str  # a hash of the mechanisms
    winner: tuple[Tensor, Tensor] | None  # int64 [n], who won each image; None if mechanisms do not compete


def load_mechanisms(folder: Path) -> TrainedMechanisms:
    """The mechanisms and critics of a finished run, on the CPU and in evaluation mode."""
    tensors, about = Run(folder).load_model()
    if about.get("kind") != KIND:
        raise InputError(f"{printable(folder)} holds no mechanisms; name the folder (`out`) of a tcm mechanisms run")
    config = from_json(MechanismsConfig, Run(folder).config_of_model(about), str(folder))
    try:
        bank = config.bank.build(about["k"], config.data.view.crop, config.schedule.steps, len(about["classes"]))
        bank.load_weights(tensors)
    except (KeyError, RuntimeError) as error:
        found = f"{printable(folder)} holds weights that do not fit its configuration"
        raise InputError(f"{found}; train it again") from error
    return TrainedMechanisms(config, bank.eval())


def load_for_task(folder: Path, task: Task, crop: int, trained: TrainedMechanisms | None = None) -> LoadedMechanisms:
    """The mechanisms of the run in `folder` and the counterfactuals of this task's images; `crop` is the side of the
    images that the inverse mechanisms will transport.

    Mechanisms transport in both directions, so those of a task also serve the task with source and target exchanged.
    """
    config, bank = trained or load_mechanisms(folder)
    require_crop(folder, config.bank.generator, crop)
    sides = sides_in_training(folder, task)
    weights = weights_hash(folder)
    source, target = (
        open_counterfactuals(folder / "transported" / side, store, bank.k, weights, folder)
        for side, store in zip(sides, task, strict=True)
    )
    competes = config.bank.assignment == "competition" and bank.k > 1
    winner = (source.winner, target.winner) if competes else None
    inverse = FrozenGenerators(pair.network(sides[0]) for pair in bank.pairs())
    return LoadedMechanisms((source.images, target.images), inverse, config.bank.generator, weights, winner)


def build_inverse(k: int, generator: dict[str, Any], where: str) -> FrozenGenerators:
    """k inverse mechanisms without their weights, for a saved model that stores `generator`."""
    config = from_json(GeneratorConfig, generator, where)
    return FrozenGenerators(config.build() for _ in range(k))


def require_crop(folder: Path, generator: GeneratorConfig, crop: int) -> None:
    """An error unless the generators return images of side `crop` in their full size."""
    try:
        generator.require_side(crop)
    except InputError as error:
        needed = f"a multiple of {2**generator.halvings}, {generator.smallest_image} or more"
        found = f"is {crop}, but the mechanisms of {printable(folder)} need {needed}"
        raise InputError("data.crop", f"{found}; change `data.crop`") from error


def sides_in_training(folder: Path, task: Task) -> tuple[Side, Side]:
    """The sides that the task's source and target had when the mechanisms were trained: the same, or exchanged."""
    source, target = (store.fingerprint for store in task)
    trained = Run(folder).images()
    if trained in ([source, target], [target, source]):
        exchanged = trained != [source, target]
    else:  # the run has no record of its images, or was trained on others
        index, _ = read_index(folder / "transported" / "source")
        exchanged = index is not None and index.originals == target != source
    return ("target", "source") if exchanged else SIDES


def weights_hash(folder: Path) -> str:
    """A hash of the mechanisms, by which their counterfactuals are recognised."""
    return hashlib.blake2b(Run(folder).model_file.read_bytes(), digest_size=16).hexdigest()
