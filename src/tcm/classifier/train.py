"""A whole run: data, method, training, evaluation, and the folder that holds the result."""

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor

from tcm.classifier.evaluate import BothPredictions, accuracies, centred, judged
from tcm.classifier.evaluation_files import write_outcome
from tcm.classifier.selection import scores
from tcm.config import from_json, to_json
from tcm.data.holdout import held_out_images, require_share
from tcm.data.stream import derived_seed
from tcm.data.task import Task, load_task
from tcm.errors import InputError, explain_out_of_memory, printable
from tcm.mechanisms.load import LoadedMechanisms, load_for_task, rebuilt_inverse
from tcm.methods import METHODS, MethodConfig
from tcm.methods.method import Method, Problem
from tcm.nn.backbone import BackboneConfig
from tcm.training.loop import LESS_MEMORY, training_loop
from tcm.training.run_config import RunConfig, make_fabric, open_run, open_stream, place, require_usable
from tcm.training.run_folder import Run

M = TypeVar("M", bound=MethodConfig)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig, Generic[M]):
    """A training run of a method."""

    method: M
    mechanisms: Path | None = None
    """Folder of a finished tcm mechanisms run whose images tcm transport has written. Only methods that use
    counterfactuals take it."""
    steps: int | None = None
    """Training steps. Default: 10000, digits 600."""
    held_out: float = 0.0
    """Share of each class's source images that training never sees, for the selection scores dev and source. 0: they
    are computed on training images, which flatters the model."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)

    def resolved(self) -> "TrainConfig[M]":
        """This config with every default filled in; mistakes are found here, before anything is written."""
        # Batch normalisation has no spread to go by in a single image.
        settled = self.settled(steps=600 if self.data.is_digits else 10000, least_batch=2)
        require_usable(to_json(self.method), "method")
        require_share(self.held_out)
        crop = settled.data.view.crop
        backbone = self.backbone.resolved(small_images=settled.data.is_small)
        backbone.require_crop(crop)
        mechanisms = self.mechanisms and Path(os.path.abspath(self.mechanisms.expanduser()))
        return dataclasses.replace(settled, backbone=backbone, mechanisms=mechanisms)


class Trained(NamedTuple):
    """A finished run, ready to predict."""

    name: str  # of the method
    config: TrainConfig[Any]
    classes: tuple[str, ...]
    method: Method


@explain_out_of_memory("training", LESS_MEMORY)
def train_classifier(name: str, config: TrainConfig[Any], out: Path, quiet: bool = False) -> bool:
    """Trains the method `name` in the folder `out`, from where it stopped; False if it was finished already."""
    if not isinstance(config.method, METHODS.get(name, ())):
        wrong = f'there is no method "{name}" with the config {type(config.method).__name__}'
        raise InputError(f"{wrong}; give one of {', '.join(METHODS)} and its config")
    require_mechanisms(name, config)
    config = config.resolved()
    fabric, run = open_run(config, out, {"method_name": name})
    if run.finished:
        return False
    try:
        task = load_task(config.data, quiet)
        run.require_images([store.fingerprint for store in task])
        given = load_for_task(config.mechanisms, task, config.data.view.crop) if config.mechanisms else None
        if given:
            require_same_inverse(run, given, f"--mechanisms {config.mechanisms}")
        held_out = held_out_images(task.source, config.held_out, config.seed) if config.held_out else None
        stream = open_stream(config, task, fabric, given and given.transported, held_out)
        torch.manual_seed(derived_seed(config.seed, "weights"))
        problem = Problem(len(task.source.classes), config.backbone.build(), given and given.inverse)
        method = config.method.build(problem)
    except InputError:
        run.take_back_start()
        raise
    run.write_environment(str(fabric.device))
    place(fabric, method, config)

    found: BothPredictions | None = None

    def evaluate() -> dict[str, float]:
        nonlocal found
        found = judged(fabric, method, task, config.data.view.crop)
        source, target = found
        known = accuracies("source", source.probabilities, task.source)
        known |= accuracies("target", target.probabilities, task.target)
        return known | scores(source, task.source.labels, target, held_out, fabric.device) | method.diagnostics()

    training_loop(
        fabric,
        method,
        stream,
        run,
        schedule=config.schedule,
        seed=config.seed,
        evaluate=evaluate,
        conclude=lambda: conclude(fabric, method, task, given, config.data.view.crop),
        title=f"{name} {task.source.name} → {task.target.name}",
        quiet=quiet,
    )
    if found is None:  # the last step was taken by a process that was stopped right after it
        found = judged(fabric, method.eval(), task, config.data.view.crop)
    write_outcome(run, name, task, found, config.schedule.steps, method.singular_values())
    about = {"method_name": name, "config": to_json(config), "classes": task.source.classes}
    run.save_model(method.state_dict(), {**about, "inverse": given.about} if given else about)
    return True


@torch.inference_mode()
def conclude(fabric: Fabric, method: Method, task: Task, given: LoadedMechanisms | None, crop: int) -> None:
    """What a method has to do after its last step, in evaluation mode."""

    def batches(images: Tensor) -> Iterator[Tensor]:
        return centred(images, crop, fabric.device)

    source = zip(batches(task.source.images), batches(given.transported[0]), strict=True) if given else ()
    with fabric.autocast(), torch.compiler.set_stance("force_eager"):
        method.conclude(batches(task.target.images), source)


def require_mechanisms(name: str, config: TrainConfig[Any]) -> None:
    """An error unless mechanisms are given to a method that uses them, and to no other."""
    if config.method.uses_counterfactuals and config.mechanisms is None:
        remedy = "name the --out of a tcm mechanisms run whose images tcm transport has written"
        raise InputError(f"{name} uses counterfactuals, but --mechanisms is not given; {remedy}")
    if config.mechanisms is not None and not config.method.uses_counterfactuals:
        raise InputError(f"--mechanisms is given, but {name} uses no counterfactuals; leave it out")


def require_same_inverse(run: Run, given: LoadedMechanisms, where: str) -> None:
    """An error if the run was begun with other mechanisms than those that the folder holds now."""
    state = run.load_state(torch.device("cpu"))
    begun = state.get("learner", {}) if state else {}
    for name, now in given.inverse.state_dict().items():
        if not torch.equal(begun.get(f"inverse.{name}", now), now):
            found = f"{printable(where)} holds other mechanisms than those that {printable(run.folder)} was begun with"
            raise InputError(f"{found}; restore them or choose another --out")


def load_trained(folder: Path) -> Trained:
    """The model of a finished run, from its model.safetensors alone, on the CPU and in evaluation mode."""
    tensors, about = Run(folder).load_model()
    name = about.get("method_name")
    if name is None:
        raise InputError(f"{folder} holds no classifier; name the --out of a tcm train run")
    if name not in METHODS:
        raise InputError(f'{folder} holds a model of the unknown method "{name}"; it has {", ".join(METHODS)}')
    config = from_json(TrainConfig[METHODS[name]], about["config"], str(folder))
    classes = tuple(about["classes"])
    inverse = rebuilt_inverse(about["inverse"], str(folder)) if "inverse" in about else None
    method = config.method.build(Problem(len(classes), config.backbone.build(initialise=False), inverse))
    try:
        method.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{folder} holds weights that do not fit its configuration; train it again") from error
    return Trained(name, config, classes, method.eval())


@explain_out_of_memory("evaluating", "free some, or try --device cpu")
def evaluate_run(folder: Path, device: str = "auto", quiet: bool = False) -> dict[str, Any]:
    """Evaluates a finished run again on its own data and writes the result into its folder."""
    trained = load_trained(folder)
    config = trained.config
    fabric = make_fabric(device, config.precision)
    fabric.to_device(trained.method)
    task = load_task(config.data, quiet)
    if task.source.classes != trained.classes:
        now, then = (", ".join(names) for names in (task.source.classes, trained.classes))
        found = f"the classes of {task.source.name} are {now}, but {folder} was trained on {then}"
        raise InputError(f"{found}; restore the data or train again in a new --out")
    found = judged(fabric, trained.method, task, config.data.view.crop)
    return write_outcome(
        Run(folder), trained.name, task, found, config.schedule.steps, trained.method.singular_values()
    )
