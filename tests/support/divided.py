"""Every learner for a few steps in double precision, in one process or several: for tests that they are equal."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tcm.data.augment import as_input
from tcm.data.batch import Batch
from tcm.data.store import ImageStore
from tcm.data.stream import Stream, Strong
from tcm.data.strong_views import SMALL_IMAGES
from tcm.data.task import DataConfig, Task, load_task
from tcm.mechanisms.train import FORMS as MECHANISMS
from tcm.mechanisms.train import Form, bank_config
from tcm.methods import METHODS
from tcm.methods.method import Method, MethodConfig, Problem, TargetImages, TaskFeatures
from tcm.nn.backbone import BackboneConfig
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig
from tcm.training.device import Inference
from tcm.training.learner import Learner
from tcm.training.loop import Batches, Schedule, Training, training_loop
from tcm.training.processes import ALONE, Processes
from tcm.training.run_folder import Run
from tcm.training.tracking import Tracker

BATCH = 7  # which neither 2 nor 4 processes divide evenly
STEPS = 3
DEVICE = torch.device(os.environ.get("TCM_TEST_DEVICE", "cpu"))
FABRIC = Inference(DEVICE, "fp32")  # which loads faster than Lightning Fabric
SMALL = {name: partial(config.for_images, small=True) for name, config in METHODS.items()}
# Every method, and forms of some with other passes, optimisers or phases than the default.
METHOD_FORMS: dict[str, Callable[[], MethodConfig]] = {
    **SMALL,
    "cst with SAM": lambda: replace(METHODS["cst"](), rho=0.5, separate_passes=True),  # pyright: ignore
    "icon with SAM": lambda: replace(METHODS["icon"](), rho=0.5, separate_passes=True),  # pyright: ignore
    "erm frozen": lambda: replace(SMALL["erm"](), frozen=True),  # pyright: ignore
    "a2lp frozen": lambda: replace(SMALL["a2lp"](), frozen=True),  # pyright: ignore
    "tcm in two rounds": lambda: replace(SMALL["tcm"](), rounds=2),  # pyright: ignore
}
MECHANISM_FORMS: dict[str, Form] = {f"mechanisms {form}": form for form in MECHANISMS}
ALL = [*METHOD_FORMS, *MECHANISM_FORMS]


def small_task() -> Task:
    """Every eighth image of the digits."""

    def thinned(store: ImageStore) -> ImageStore:
        lists = {name: getattr(store, name)[::8] for name in ("paths", "original_sizes", "hashes")}
        return replace(store, images=store.images[::8].clone(), labels=store.labels[::8].clone(), **lists)

    source, target = load_task(DataConfig(benchmark="digits").resolved(), quiet=True)
    return Task(thinned(source), thinned(target))


def build(name: str, task: Task) -> Learner:
    """The learner of this name with its initial weights, in double precision."""
    torch.manual_seed(0)
    if name in MECHANISM_FORMS:
        tiny = {"generator": GeneratorConfig(2, 1, 1, kernel=3), "critic": CriticConfig(4, 1)}
        config = replace(bank_config(MECHANISM_FORMS[name], small=True), **tiny, warmup=1, pool=10)
        return config.build(3, 32, STEPS, 10).double().to(DEVICE)
    return build_method(narrowed(METHOD_FORMS[name]()), task).to(DEVICE)


def narrowed(config: Any) -> MethodConfig:
    """The config with layers so narrow that a step takes no time.

    With fewer than 64 features, the matrix that tcm-paper inverts is nearly singular and makes rounding large.
    """
    widths = {"hidden": 32, "width": 8, "noise": 16}
    found = {name: width for name, width in widths.items() if hasattr(config, name)}
    return replace(config, recipe=replace(config.recipe, bottleneck=64), **found)


def build_method(config: MethodConfig, task: Task) -> Method:
    """A method that may predict the images of the task in the course of training."""
    images = [as_input(store.images).double().to(DEVICE) for store in task]

    @torch.no_grad()
    def task_features(network: Callable[[Tensor], Tensor]) -> TaskFeatures:
        return TaskFeatures(network(images[0]), task.source.labels.to(DEVICE), network(images[1]))

    @torch.no_grad()
    def predict(method: Method) -> Tensor:
        return method.answer_fast(images[1]).logits.softmax(dim=1)

    @torch.no_grad()
    def features(method: Method) -> Tensor:
        return method.answer_fast(images[1]).features

    inverse = None
    if config.runs_inverse:
        generator = GeneratorConfig(2, 1, 1, kernel=3)
        inverse = FrozenGenerators(generator.build() for _ in range(config.number_of_mechanisms or 2))
    target = TargetImages(len(task.target), predict, features)
    return config.build(Problem(10, BackboneConfig("small").build(), inverse, target, task_features)).double()


class DoubleStream:
    """Batches in double precision. The negatives of images serve as counterfactuals."""

    def __init__(self, name: str, task: Task):
        self.options = {"view": DataConfig(benchmark="digits").resolved().view, "device": DEVICE}
        if name in METHOD_FORMS:
            config = METHOD_FORMS[name]()
            k, share = config.number_of_mechanisms or 2, config.strong_counterfactuals
            made = ((255 - store.images)[:, None].expand(-1, k, -1, -1, -1) for store in task)
            strong = None if share is None else Strong(SMALL_IMAGES, share)
            self.options |= {"transported": tuple(made), "strong": strong}
        self.stream = Stream(*task, batch=BATCH, seed=5, **self.options)

    def batch(self, step: int) -> Batch:
        return doubled(self.stream.batch(step))


def doubled(value: Any) -> Any:
    """Tensors of real numbers in double precision, also those in tuples."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    return type(value)(*map(doubled, value)) if isinstance(value, tuple) else value


class PartStream(DoubleStream):
    """Batches that hold only the images of one process: the mistake of losses that do not see the whole batch."""

    processes = ALONE

    def batch(self, step: int) -> Batch:
        source, labels, target, *_ = super().batch(step)
        own = self.processes.own
        return Batch(own(source), own(labels), own(target))


def steps_of(learner: Learner, stream: Batches, run: Run) -> dict[str, Tensor]:
    """The weights after all steps. Nothing is saved."""
    training = Training(FABRIC, learner, stream, run, STEPS, seed=5, tracker=Tracker(None, run, {}))
    for _ in range(STEPS):
        training.step()
    return state_of(learner)


def state_of(learner: Learner) -> dict[str, Tensor]:
    """Copies of the real numbers in the state of a learner.

    Without propagated labels: they are solved up to a tolerance of 1e-5, after which rounding decides. What the
    weights learn from them is compared.
    """
    found = {key: x for key, x in learner.state_dict().items() if isinstance(x, Tensor) and key != "propagated"}
    return {key: x.clone() for key, x in found.items() if x.is_floating_point()}


def difference(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference of two states."""
    return max(float((a[key] - b[key]).abs().max()) for key in a if a[key].numel())


def saved_run(name: str, task: Task, folder: Path, processes: Processes, last: int = STEPS) -> dict[str, Tensor]:
    """The weights of the run in this folder, started or continued until it has `last` steps and is interrupted."""
    learner = build(name, task)
    if processes.size > 1:
        learner.divide(processes)
    run, schedule = Run(folder, processes), Schedule(STEPS, log_every=1, evaluate_every=STEPS, save_every=1)
    processes.from_first(lambda: run.start({}))
    stream = BreakingStream(name, task)
    stream.last = last
    with suppress(ConnectionAbortedError):
        training_loop(FABRIC, learner, stream, run, schedule=schedule, seed=5, evaluate=dict, quiet=True)
    run.release()
    return state_of(learner)


class BreakingStream(DoubleStream):
    """A stream that breaks off after some steps, as a power cut would."""

    last = STEPS

    def batch(self, step: int) -> Batch:
        if step == self.last:
            raise ConnectionAbortedError("the power is gone")
        return super().batch(step)
