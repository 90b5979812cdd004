"""A run of stage 2 before its first step: images, mechanisms, batches and the method with new weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tcm.classifier.evaluate import predict_images
from tcm.classifier.frozen_features import features_of_task
from tcm.classifier.train_config import TrainConfig
from tcm.config import from_json, to_json
from tcm.data.holdout import held_out_images
from tcm.data.stream import Stream, derived_seed
from tcm.data.task import Task
from tcm.errors import InputError
from tcm.mechanisms.judgement import Judgement, judged
from tcm.mechanisms.load import LoadedMechanisms, TrainedMechanisms, load_for_task
from tcm.mechanisms.measurements import IMAGES, measure
from tcm.methods import MethodConfig
from tcm.methods.method import Method, Problem, TargetImages, TaskFeatures
from tcm.nn.backbone import Backbone
from tcm.progress import ProgressDisplay
from tcm.training.device import Compute
from tcm.training.run_config import open_stream
from tcm.training.run_folder import Run


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
    transported = usable = None
    if mechanisms:
        transported, every = mechanisms.transported, list(range(len(mechanisms.inverse)))
        judgement = judge_mechanisms(config, run, fabric, task, mechanisms, backbone, quiet)
        usable = config.method.usable(judgement.used if judgement else (every, every))
    stream = open_stream(config, task, fabric, transported, held_out, config.method.strong_counterfactuals, usable)

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
            with ProgressDisplay("testing the mechanisms", total, unit="image", quiet=quiet) as display:
                made, crop = mechanisms.transported, config.data.view.crop
                found = measure(fabric, network, task, made, crop, mechanisms.winner, display.update)
            run.note_judgement(to_json(judged(found)))
        return run.judgement()

    return from_json(Judgement, run.processes.from_first(noted), str(run.judgement_file))


def require_number(method: MethodConfig, k: int) -> None:
    """An error unless the method can use k mechanisms."""
    needed = method.number_of_mechanisms
    if needed not in (None, k):
        found = f"has {k} mechanisms, but this method uses {needed}"
        raise InputError("mechanisms", f"{found}; name a run of tcm mechanisms with `k` {needed}")
