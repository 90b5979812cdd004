"""A run of stage 2: loads the data, trains a method, evaluates it and writes the run folder."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from tcm.classifier.evaluate import (
    TaskPredictions,
    accuracies,
    centre_crop_batches,
    counterfactual_variants,
    predict_images,
    predict_task,
    source_accuracies,
)
from tcm.classifier.evaluation_files import write_evaluation
from tcm.classifier.frozen_features import features_of_task, predict_features
from tcm.classifier.selection import scores
from tcm.config import from_json, to_json
from tcm.data.holdout import held_out_images, require_share
from tcm.data.stream import Stream, derived_seed
from tcm.data.task import Task, load_task
from tcm.errors import InputError, explain_out_of_memory
from tcm.mechanisms.judgement import Judgement, judged
from tcm.mechanisms.load import LoadedMechanisms, TrainedMechanisms, build_inverse, load_for_task
from tcm.mechanisms.measurements import IMAGES, measure
from tcm.methods import METHODS, MethodConfig
from tcm.methods.frozen import FrozenMethod
from tcm.methods.method import Method, Problem, RecipeName, TargetImages, TaskFeatures
from tcm.nn.backbone import Backbone, BackboneConfig
from tcm.progress import ProgressDisplay
from tcm.training.device import Compute, inference_on, uncompiled
from tcm.training.loop import LESS_MEMORY, training_loop
from tcm.training.run_config import RunConfig, open_run, open_stream, prepare_learner, require_valid_numbers
from tcm.training.run_folder import Run, mechanisms_run
from tcm.training.tracking import Tracker, TrackerName, require_tracker

M = TypeVar("M", bound=MethodConfig)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig, Generic[M]):
    """A training run of a method."""

    method: M
    mechanisms: Path | None = None
    """Folder of a finished tcm mechanisms run whose images tcm transport has written, or of a tcm fit. Only methods
    that use counterfactuals take it."""
    steps: int | None = None
    """Training steps. Default: 10000, tcm and tcm-control 4000, tcm-release 15000, digits 600; 1 if nothing is
    trained."""
    held_out: float = 0.0
    """Share of the source images of each class that training does not see, for tcm estimate and the selection scores
    dev and source. 0: these scores use training images and are too optimistic."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)

    @classmethod
    def with_recipe(cls, method: type[M], recipe: RecipeName, small: bool) -> "TrainConfig[M]":
        """The default config of a method; `small` is for images below 64 pixels."""
        settings = method.with_recipe(recipe, small)
        if recipe == "common":
            return cls(method=settings)
        return cls(method=settings, steps=method.authors_steps, batch=method.authors_batch)

    def resolved(self) -> "TrainConfig[M]":
        """This config with every default filled in. Finds mistakes before anything is written."""
        # Batch normalisation needs two images.
        steps = 600 if self.data.is_digits else self.method.default_steps
        settled = self.with_defaults(steps=steps if self.method.trains else 1, min_batch=2)
        require_valid_numbers(to_json(self.method), "method")
        require_share(self.held_out)
        crop = settled.data.view.crop
        backbone = self.backbone.resolved(small_images=settled.data.is_small)
        backbone.require_crop(crop)
        mechanisms = self.mechanisms and mechanisms_run(Path(os.path.abspath(self.mechanisms.expanduser())))
        return dataclasses.replace(settled, backbone=backbone, mechanisms=mechanisms)


class Trained(NamedTuple):
    """A finished run, ready to predict."""

    name: str  # of the method
    config: TrainConfig[Any]
    classes: tuple[str, ...]
    method: Method


@explain_out_of_memory("training", LESS_MEMORY)
def train_classifier(
    name: str,
    config: TrainConfig[Any],
    out: Path,
    quiet: bool = False,
    task: Task | None = None,
    trained: TrainedMechanisms | None = None,
    log: TrackerName | None = None,
) -> bool:
    """Trains the method `name` in the folder `out`, or resumes it there. False if it was finished already.

    `task` and `trained` are the images and the mechanisms of the config, if they are loaded already. `log` names a
    tracker that gets a copy of the metrics.
    """
    require_tracker(log)
    require_method(name, config)
    require_mechanisms(name, config)
    config = config.resolved()
    fabric, run = open_run(config, out, {"method_name": name})
    processes = run.processes
    if processes.from_first(lambda: run.finished):
        return False
    quiet = quiet or not processes.first
    try:
        task = task or processes.first_then_others(lambda: load_task(config.data, quiet))
        with processes.together():
            setup = set_up(config, run, fabric, task, trained, quiet)
    except InputError:
        run.undo_start()
        raise
    method = setup.method
    run.write_environment(str(fabric.device))
    prepare_learner(fabric, method, config, processes)
    evaluator = Evaluator(fabric, setup, config.data.view.crop, quiet)
    training_loop(
        fabric,
        method,
        setup.stream,
        run,
        schedule=config.schedule,
        seed=config.seed,
        evaluate=evaluator,
        conclude=lambda: finish_training(fabric, setup, config.data.view.crop),
        title=f"{name} {task.source.name} → {task.target.name}",
        quiet=quiet,
        tracker=Tracker(log, run, {"method_name": name, **to_json(config, names_only=True)}),
    )
    with processes.explain_loss():
        predictions = evaluator.last_predictions()
        processes.from_first(lambda: write_results(run, name, setup, predictions))
    return True


class Setup(NamedTuple):
    """Everything that a training run needs beside its config."""

    config: TrainConfig[Any]
    task: Task
    mechanisms: LoadedMechanisms | None
    held_out: Tensor | None  # bool [n]: the source images that training does not see
    stream: Stream
    method: Method


def set_up(
    config: TrainConfig[Any],
    run: Run,
    fabric: Compute,
    task: Task,
    trained: TrainedMechanisms | None,
    quiet: bool = False,
) -> Setup:
    """Loads the mechanisms of a resolved config and builds its method, with fresh weights on the CPU."""
    crop, inverse = config.data.view.crop, None
    mechanisms = load_for_task(config.mechanisms, task, crop, trained) if config.mechanisms else None
    if mechanisms:
        require_number(config.method, len(mechanisms.inverse))
    run.require_inputs([store.fingerprint for store in task], mechanisms.weights if mechanisms else None)
    if mechanisms and config.method.runs_inverse:
        inverse = mechanisms.inverse
    held_out = held_out_images(task.source, config.held_out, config.seed) if config.held_out else None
    torch.manual_seed(derived_seed(config.seed, "weights"))
    backbone = config.backbone.build()
    judgement = judge_mechanisms(config, run, fabric, task, mechanisms, backbone, quiet) if mechanisms else None
    transported, strong = mechanisms and mechanisms.transported, config.method.strong_counterfactuals
    stream = open_stream(config, task, fabric, transported, held_out, strong, judgement and judgement.used)

    def predict(method: Method) -> Tensor:
        return predict_images(fabric, method.answer, task.target.images, crop).probabilities

    def features(method: Method) -> Tensor:
        return predict_images(fabric, method.answer, task.target.images, crop).features

    def task_features(network: Callable[[Tensor], Tensor]) -> TaskFeatures:
        used = slice(None) if held_out is None else ~held_out
        source, target = features_of_task(fabric, network, task, config)
        return TaskFeatures(source[used], task.source.labels[used].to(source.device), target)

    target = TargetImages(len(task.target), predict, features)
    problem = Problem(len(task.source.classes), backbone, inverse, target, task_features)
    return Setup(config, task, mechanisms, held_out, stream, config.method.build(problem))


def judge_mechanisms(
    config: TrainConfig[Any],
    run: Run,
    fabric: Compute,
    task: Task,
    mechanisms: LoadedMechanisms,
    backbone: Backbone,
    quiet: bool,
) -> Judgement | None:
    """Which mechanisms the run uses; None: all of them.

    Features of random weights say nothing about images, so without pretrained weights a small network is trained on
    source images and asked instead. The run notes the judgement, so that a resumed run uses the same mechanisms.
    """
    if not config.method.only_useful_mechanisms:
        return None

    def noted() -> Any:
        if run.judgement() is None:
            network = backbone.eval() if backbone.pretrained else None
            if network:
                fabric.to_device(network)
            total = sum(min(IMAGES, len(store)) for store in task) * (1 + mechanisms.transported[0].shape[1])
            with ProgressDisplay("judging the mechanisms", total, unit="image", quiet=quiet) as display:
                made, crop = mechanisms.transported, config.data.view.crop
                found = measure(fabric, network, task, made, crop, mechanisms.winner, display.update)
            run.note_judgement(to_json(judged(found)))
        return run.judgement()

    return from_json(Judgement, run.processes.from_first(noted), str(run.judgement_file))


class Evaluator:
    """Called at every evaluation of a run: returns its metrics and keeps the newest predictions."""

    def __init__(self, fabric: Compute, setup: Setup, crop: int, quiet: bool = True):
        self.fabric, self.setup, self.crop, self.quiet = fabric, setup, crop, quiet
        self.predictions: TaskPredictions | None = None

    def __call__(self) -> dict[str, float]:
        """Accuracies of both domains, selection scores and the diagnostics of the method."""
        task, method = self.setup.task, self.setup.method
        self.predictions = self.predict()
        source, target = self.predictions
        metrics = source_accuracies(source.probabilities, task.source)
        metrics |= accuracies("target", target.probabilities, task.target)
        metrics |= scores(source, task.source.labels, target, self.setup.held_out, self.fabric.device)
        return metrics | method.diagnostics()

    def predict(self) -> TaskPredictions:
        """Predictions for both domains. Features that are never trained are not computed again."""
        method, task = self.setup.method, self.setup.task
        if not isinstance(method, FrozenMethod):
            return predict_task(self.fabric, method, task, self.crop, self.quiet)
        found = features_of_task(self.fabric, method.backbone, task, self.setup.config)
        return TaskPredictions(*(predict_features(method, features) for features in found))

    def last_predictions(self) -> TaskPredictions:
        """The predictions of the trained method with all their variants.

        They are computed again only if no evaluation was made in this process.
        """
        method, mechanisms = self.setup.method.eval(), self.setup.mechanisms
        if self.predictions is None:  # an earlier process took the last step and was stopped right after it
            self.predictions = self.predict()
        source, target = self.predictions
        variants = {**target.variants, **{name: found.cpu() for name, found in method.found_in_training().items()}}
        if mechanisms is not None and method.inverse is None:
            made = mechanisms.transported[1]
            variants |= counterfactual_variants(self.fabric, method, target.probabilities, made, self.crop, self.quiet)
        return TaskPredictions(source, target._replace(variants=variants))


@torch.inference_mode()
def finish_training(fabric: Compute, setup: Setup, crop: int) -> None:
    """Runs what a method does after its last step, in evaluation mode."""

    def batches(images: Tensor) -> Iterator[Tensor]:
        return centre_crop_batches(images, crop, fabric.device)

    task, mechanisms = setup.task, setup.mechanisms
    source = zip(batches(task.source.images), batches(mechanisms.transported[0]), strict=True) if mechanisms else ()
    with fabric.autocast(), uncompiled():
        setup.method.conclude(batches(task.target.images), source)


def write_results(run: Run, name: str, setup: Setup, predictions: TaskPredictions) -> None:
    """Writes the evaluation of a finished training, and then its model."""
    steps, singular_values = setup.config.schedule.steps, setup.method.singular_values()
    write_evaluation(run, name, setup.task, predictions, steps, singular_values, setup.held_out)
    save_classifier(run, name, setup.config, setup)


def save_classifier(run: Run, name: str, config: TrainConfig[Any], setup: Setup) -> None:
    """Writes model.safetensors with all that `load_trained` needs."""
    about = {"method_name": name, "config": to_json(config, names_only=True), "classes": setup.task.source.classes}
    if setup.mechanisms:
        about["k"] = len(setup.mechanisms.inverse)
    if setup.mechanisms and setup.method.inverse:
        about["generator"] = to_json(setup.mechanisms.generator)
    needed = setup.method.state_dict()
    for training_only in setup.method.training_only:
        del needed[training_only]
    run.save_model(needed, about)


def require_method(name: str, config: TrainConfig[Any]) -> None:
    """An error unless the config is one of the method `name`."""
    if not isinstance(config.method, METHODS.get(name, ())):
        wrong = f'there is no method "{name}" with the config {type(config.method).__name__}'
        raise InputError(f"{wrong}; give one of {', '.join(METHODS)} and its config")


def require_mechanisms(name: str, config: TrainConfig[Any]) -> None:
    """An error unless mechanisms are given exactly when the method uses them."""
    if config.method.uses_counterfactuals and config.mechanisms is None:
        remedy = "name the folder (`out`) of a tcm mechanisms run whose images tcm transport has written"
        raise InputError("mechanisms", f"is not given, but {name} uses counterfactuals; {remedy}")
    if config.mechanisms is not None and not config.method.uses_counterfactuals:
        raise InputError("mechanisms", f"is given, but {name} uses no counterfactuals; leave it out")


def require_number(method: MethodConfig, k: int) -> None:
    """An error unless the method can use k mechanisms."""
    needed = method.number_of_mechanisms
    if needed not in (None, k):
        found = f"has {k} mechanisms, but this method uses {needed}"
        raise InputError("mechanisms", f"{found}; name a run of tcm mechanisms with `k` {needed}")


def load_trained(folder: Path) -> Trained:
    """The model of a finished run, from its model.safetensors alone, on the CPU and in evaluation mode.

    `folder` may be that file itself.
    """
    run = Run.of_model(folder)
    tensors, about = run.load_model()
    name = about.get("method_name")
    if name is None:
        raise InputError(f"{folder} holds no classifier; name the folder (`out`) of a tcm train run")
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise InputError(f'{folder} holds a model of the unknown method "{name}"; the methods are {known}')
    config = from_json(TrainConfig[METHODS[name]], run.config_of_model(about), str(folder))
    classes = tuple(about["classes"])
    inverse = build_inverse(about["k"], about["generator"], str(folder)) if "generator" in about else None
    method = config.method.build(Problem(len(classes), config.backbone.build(initialise=False), inverse))
    try:
        # A published model comes without the tensors that only training needs.
        unused = {name: tensor for name, tensor in method.state_dict().items() if name in about.get("left_out", ())}
        method.load_state_dict({**unused, **tensors})
    except RuntimeError as error:
        raise InputError(f"{folder} holds weights that do not fit its configuration; train it again") from error
    return Trained(name, config, classes, method.eval())


@explain_out_of_memory("evaluating", "free some, or set `device=cpu`")
def evaluate_run(folder: Path, device: str = "auto", quiet: bool = False) -> dict[str, Any]:
    """Evaluates a finished run again on its own data, writes the result into its folder and returns it."""
    trained = load_trained(folder)
    if not Run(folder).exists:
        found = f"{folder} has a model but no config.json, so its images are unknown"
        raise InputError(f"{found}; name the folder of its run, or use tcm predict")
    config = trained.config
    fabric = inference_on(device, config.precision)
    fabric.to_device(trained.method)
    task = load_task(config.data, quiet)
    if task.source.classes != trained.classes:
        now, then = (", ".join(names) for names in (task.source.classes, trained.classes))
        found = f"the classes of {task.source.name} are {now}, but {folder} was trained on {then}"
        raise InputError(f"{found}; restore the data or train again in a new `out`")
    predictions = predict_task(fabric, trained.method, task, config.data.view.crop, quiet)
    held_out = held_out_images(task.source, config.held_out, config.seed) if config.held_out else None
    steps, singular_values = config.schedule.steps, trained.method.singular_values()
    return write_evaluation(Run(folder), trained.name, task, predictions, steps, singular_values, held_out)
