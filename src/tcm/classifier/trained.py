"""A finished run of stage 2: its model, and its evaluation on its own data."""

from pathlib import Path
from typing import Any, NamedTuple

from tcm.classifier.evaluate import predict_task
from tcm.classifier.evaluation_files import write_evaluation
from tcm.classifier.train_config import TrainConfig
from tcm.config import from_json
from tcm.data.holdout import held_out_images
from tcm.data.task import load_task
from tcm.errors import InputError, explain_out_of_memory
from tcm.mechanisms.load import build_inverse
from tcm.methods import METHODS
from tcm.methods.method import Method, Problem
from tcm.training.device import inference_on
from tcm.training.run_folder import Run


class Trained(NamedTuple):
    """A finished run, ready to predict."""

    name: str  # of the method
    config: TrainConfig[Any]
    classes: tuple[str, ...]
    method: Method


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
