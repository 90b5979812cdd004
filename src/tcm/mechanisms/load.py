"""What stage 2 takes over from stage 1: every image's counterfactuals, and the inverse mechanisms to predict with."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from tcm.config import from_json, to_json
from tcm.data.task import Task
from tcm.errors import InputError, printable
from tcm.mechanisms.counterfactual_store import open_counterfactuals, read_index
from tcm.mechanisms.pair import SIDES, Side
from tcm.mechanisms.train import load_mechanisms
from tcm.mechanisms.transport import weights_hash
from tcm.nn.generator import FrozenGenerators, GeneratorConfig
from tcm.training.run_folder import Run


class LoadedMechanisms(NamedTuple):
    """The mechanisms of a finished and transported run, for a task on the same images."""

    transported: tuple[Tensor, Tensor]  # uint8 [n, k, size, size, 3], memory-mapped: M_i(x_s) and M_i^-1(x_t)
    inverse: FrozenGenerators  # M_1^-1 to M_k^-1, on the CPU
    generator: GeneratorConfig

    @property
    def about(self) -> dict[str, Any]:
        """What a saved model must say, so that `rebuilt_inverse` can make room for the inverse mechanisms in it."""
        return {"k": len(self.inverse), "generator": to_json(self.generator)}


def load_for_task(folder: Path, task: Task, crop: int) -> LoadedMechanisms:
    """The mechanisms of the run in `folder` and what they made of this task's images, to be cut to that side.

    Mechanisms go both ways, so those of a task serve its reverse, too.
    """
    config, bank = load_mechanisms(folder)
    require_crop(folder, config.bank.generator, crop)
    sides = learned_as(folder, task)
    weights = weights_hash(folder)
    source, target = (
        open_counterfactuals(folder / "transported" / side, store, bank.k, weights, folder).images
        for side, store in zip(sides, task, strict=True)
    )
    inverse = FrozenGenerators(pair.network(sides[0]) for pair in bank.pairs())
    return LoadedMechanisms((source, target), inverse, config.bank.generator)


def rebuilt_inverse(about: dict[str, Any], where: str) -> FrozenGenerators:
    """Networks for the inverse mechanisms of a saved model, whose weights are still to be loaded."""
    generator = from_json(GeneratorConfig, about["generator"], where)
    return FrozenGenerators(generator.build() for _ in range(about["k"]))


def require_crop(folder: Path, generator: GeneratorConfig, crop: int) -> None:
    """An error unless the inverse mechanisms return images of that side as large as they are."""
    try:
        generator.require_side(crop)
    except InputError as error:
        needed = f"a multiple of {2**generator.halvings}, {generator.smallest_image} or more"
        found = f"--data.crop is {crop}, but the mechanisms of {printable(folder)} need {needed}"
        raise InputError(f"{found}; change --data.crop") from error


def learned_as(folder: Path, task: Task) -> tuple[Side, Side]:
    """What the task's source and target were when the mechanisms were learned: the same, or the other way round."""
    source, target = (store.fingerprint for store in task)
    learned = Run(folder).images()
    if learned in ([source, target], [target, source]):
        swapped = learned != [source, target]
    else:  # the run does not say, or learned from other images
        index, _ = read_index(folder / "transported" / "source")
        swapped = index is not None and index.originals == target != source
    return ("target", "source") if swapped else SIDES
