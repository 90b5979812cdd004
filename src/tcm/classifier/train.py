"""A run of stage 2: loads the data, trains a method, evaluates it and writes the run folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tcm.classifier.evaluate import (
    TaskPredictions,
    accuracies,
    centre_crop_batches,
    counterfactual_variants,
    predict_task,
    source_accuracies,
)
from tcm.classifier.evaluation_files import write_evaluation
from tcm.classifier.frozen_features import features_of_task, predict_features
from tcm.classifier.selection import scores
from tcm.classifier.setup import Setup, set_up
from tcm.classifier.train_config import TrainConfig
from tcm.config import to_json
from tcm.data.task import Task, load_task
from tcm.errors import InputError, explain_out_of_memory
from tcm.mechanisms.load import TrainedMechanisms
from tcm.methods import METHODS
from tcm.methods.frozen import FrozenMethod
from tcm.training.device import Compute, uncompiled
from tcm.training.loop import LESS_MEMORY, training_loop
from tcm.training.run_config import open_run, prepare_learner
from tcm.training.run_folder import Run
from tcm.training.tracking import Tracker, TrackerName, require_tracker


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
