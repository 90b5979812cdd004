"""Everything that can fail in a fit, tried before its first step, and how long the stages will take."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tcm.classifier.evaluate import run_in_batches
from tcm.classifier.train_config import TrainConfig
from tcm.config import to_json
from tcm.data.holdout import held_out_images
from tcm.data.stream import Stream
from tcm.data.task import Task
from tcm.errors import InputError, explain_out_of_memory, printable
from tcm.mechanisms.train import MechanismsConfig, require_room
from tcm.methods.method import Problem
from tcm.nn.backbone import Backbone
from tcm.pipeline.config import FitConfig, StageOne
from tcm.pipeline.plan import SOURCE_ONLY, STAGE_ONE, Plan, mechanisms_config, train_config
from tcm.pipeline.probe import counted_bytes, seconds_of_step, seconds_of_transport, time_of
from tcm.progress import format_size
from tcm.training.device import Compute, free_memory, make_fabric
from tcm.training.launch import require_images
from tcm.training.loop import LESS_MEMORY
from tcm.training.processes import current_processes
from tcm.training.run_config import open_stream, require_valid_numbers
from tcm.training.run_folder import Run

EVALUATIONS = 10  # of a run
SECONDS_OF_FIT = 1.4e-4  # of self-training, per image and class: 60 s for 6,792 images of 65 classes on two CPU cores


class TimeEstimate(NamedTuple):
    """How long a fit will take."""

    stages: dict[str, float]  # seconds of each stage that is not finished yet, in their order
    frozen: float | None  # seconds that the features of a frozen backbone would take; None for small networks

    @property
    def total(self) -> float:
        """The seconds of all stages."""
        return sum(self.stages.values())


class StageCost(NamedTuple):
    """What a stage needs."""

    seconds: float
    bytes: float


def require_settings(config: FitConfig) -> None:
    """An error if a number is invalid whatever the images are, or the backbone or its weights cannot be loaded.

    It needs no images, so it comes first.
    """
    one = config.mechanisms
    numbers = {"steps": config.steps, "batch": config.batch, "save_every": config.save_every}
    numbers |= {"mechanisms.steps": one.steps, "mechanisms.batch": one.batch, "method": to_json(config.method)}
    for name, value in numbers.items():
        require_valid_numbers(value, name)
    config.backbone.resolved(config.data.is_small).build()


@explain_out_of_memory("a training step", LESS_MEMORY)
def preflight(config: FitConfig, plan: Plan, task: Task, out: Path) -> TimeEstimate:
    """Tries all stages that are not finished: settings, crops, batches, weights, memory and room on the disk.

    What cannot work is an InputError that names the fields of `FitConfig`.
    """
    runs = {name: train_config(name, config, plan, out).resolved() for name in plan.methods}
    for run in runs.values():
        require_batch(run, task)
    one = checked_mechanisms(config, plan, task) if plan.has_stage_one else None
    costs: dict[str, StageCost] = {}
    per_image = 0.0
    for stage in plan.stages:
        if stage in runs and not Run(out / stage).finished:
            costs[stage], per_image = classifier_cost(stage, runs[stage], task, plan)
        elif stage == STAGE_ONE and one is not None and not Run(out / stage).finished:
            with in_stage_one():
                costs |= mechanisms_costs(one, task)
        else:
            costs.setdefault(stage, StageCost(0.0, 0.0))
    require_disk(out, sum(cost.bytes for cost in costs.values()))
    frozen = None if plan.data.is_small else per_image * sum(map(len, task))
    return TimeEstimate({stage: costs[stage].seconds for stage in plan.stages}, frozen)


def require_batch(config: TrainConfig[Any], task: Task) -> None:
    """An error if a domain has fewer images than a batch; of the source, those that are not held out count."""
    require_images(config.batch, current_processes().size)
    held = held_out_images(task.source, config.held_out, config.seed) if config.held_out else None
    for store, kept_out in zip(task, (held, None), strict=True):
        count = len(store) - (0 if kept_out is None else int(kept_out.sum()))
        if count < config.batch:
            left = "" if kept_out is None else " left by `held_out`"
            found = f"is {config.batch}, but {printable(store.name)} has {count} images{left}"
            raise InputError("batch", f"{found}; lower it or add images")


def checked_mechanisms(config: FitConfig, plan: Plan, task: Task) -> MechanismsConfig:
    """The config of stage 1 with all defaults, which fits the images."""
    with in_stage_one():
        one = mechanisms_config(config, plan).resolved()
        require_images(one.batch, current_processes().size)
        for store in task:
            if len(store) < one.batch:
                found = f"is {one.batch}, but {printable(store.name)} has {len(store)} images"
                raise InputError("batch", f"{found}; lower it or add images")
            try:
                one.bank.generator.require_side(store.size)
            except InputError as error:
                generator = one.bank.generator
                needed = f"a multiple of {2**generator.halvings}, {generator.smallest_image} or more"
                raise InputError("data.size", f"is {store.size}, but mechanisms need {needed}; change it") from error
        require_room(one, free_memory(make_fabric(one.device, one.precision).device))
    return one


def classifier_cost(name: str, config: TrainConfig[Any], task: Task, plan: Plan) -> tuple[StageCost, float]:
    """What a method needs, and the seconds that its backbone needs for an image without training.

    The mechanisms of stage 1 are not there yet, so strong views start from images: that takes as long.
    """
    fabric = make_fabric(config.device, config.precision)
    backbone = config.backbone.build()
    method = config.method.build(Problem(len(task.source.classes), backbone))
    fabric.to_device(method)
    size, images = counted_bytes(method), sum(map(len, task))
    per_image = seconds_per_image(fabric, backbone, task, config.data.view.crop) / current_processes().size
    if plan.frozen:  # the first method computes the features, and the second finds them in the cache
        fitting = images * len(task.source.classes) * SECONDS_OF_FIT
        return StageCost(images * per_image if name == SOURCE_ONLY else fitting, 2 * size), per_image

    def stream(batch: int) -> Stream:
        strong = config.method.strong_counterfactuals
        return open_stream(replace(config, batch=batch), task, fabric, strong_counterfactuals=strong)

    step = seconds_of_step(fabric, method, stream, max(own_part(config.batch), 2))  # batch normalisation needs two
    seconds = config.schedule.steps * step + EVALUATIONS * images * per_image
    # On disk: the model, the state with its momentum, and a second state while it is written.
    return StageCost(seconds, 5 * size), per_image


def own_part(batch: int) -> int:
    """The images of a batch that one process of the fit passes through the networks."""
    return -(-batch // current_processes().size)


def seconds_per_image(fabric: Compute, backbone: Backbone, task: Task, crop: int) -> float:
    """The seconds of a pass of the backbone, per image."""
    some = task.target.images[: 8 if fabric.device.type == "cpu" else 64]
    backbone.eval()
    found = time_of(fabric.device, lambda: [*run_in_batches(fabric, backbone, some, crop)])
    return found / len(some)


def mechanisms_costs(config: MechanismsConfig, task: Task) -> dict[str, StageCost]:
    """What stage 1 and its counterfactuals need."""
    fabric = make_fabric(config.device, config.precision)
    bank = config.bank.build(config.initial_k, config.data.view.crop, config.schedule.steps, len(task.source.classes))
    fabric.to_device(bank)
    size, images = counted_bytes(bank), sum(map(len, task))

    def stream(batch: int) -> Stream:
        return open_stream(replace(config, batch=batch), task, fabric)

    step = seconds_of_step(fabric, bank, stream, own_part(config.batch))
    transported = seconds_of_transport(fabric, bank, task) * images / current_processes().size
    made = config.initial_k * images * 3 * task.source.size**2
    return {
        STAGE_ONE: StageCost(config.schedule.steps * step, 7 * size),  # Adam keeps two moments of each parameter
        "counterfactuals": StageCost(transported, made),
    }


def require_disk(out: Path, needed: float) -> None:
    """An error if the disk of `out` has less room than the fit needs."""
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        found = f"needs {format_size(needed)}, but its disk has {format_size(free)} free"
        raise InputError("out", f"{found}; free some space or choose a folder on another disk")


@contextmanager
def in_stage_one() -> Iterator[None]:
    """Errors name the fields of `FitConfig`: `mechanisms.batch` in place of `batch`."""

    def rename(field: str) -> str:
        return f"mechanisms.{field}" if field.split(".")[0] in StageOne.__dataclass_fields__ else field

    try:
        yield
    except InputError as error:
        raise error.renamed(rename) from error
