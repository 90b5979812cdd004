"""A short measurement of each stage: seconds and bytes, from a few steps that are thrown away."""

from collections.abc import Callable
from typing import Any

import torch

from tcm.data.task import Task
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.transport import counterfactuals
from tcm.training.device import Compute
from tcm.training.learner import Learner
from tcm.training.loop import Batches
from tcm.training.loss_meter import time_on

FEW = 4  # images of each domain in a first, small step on a CPU
PATIENCE = 20.0  # seconds: a step that takes longer is not tried as a whole
LATE = 0.9  # progress of the steps: stage 1 is past its warm-up


def time_of(device: torch.device, work: Callable[[], Any]) -> float:
    """The seconds of the work, after a first time that is not counted on a GPU."""
    if device.type != "cpu":
        work()
    start = time_on(device)
    work()
    return time_on(device) - start


def seconds_of_step(fabric: Compute, learner: Learner, stream: Callable[[int], Batches], batch: int) -> float:
    """The seconds of a training step of `batch` images per domain. The learner is not to be used afterwards.

    On a CPU a smaller step comes first: if the whole one would take too long, it is estimated.
    """
    torch.set_autocast_cache_enabled(False)
    learner.train()
    optimizers = learner.build_optimizers()

    def step(images: int) -> float:
        batches = stream(images)

        def work() -> None:
            torch.manual_seed(0)
            with fabric.autocast():
                learner.update(batches.batch(0), LATE, optimizers)

        return time_of(fabric.device, work)

    if fabric.device.type == "cpu" and batch > FEW:
        step(FEW)  # the first step of a process takes longer
        guess = step(FEW) * batch / FEW
        return step(batch) if guess < PATIENCE else guess
    return step(batch)


def seconds_of_transport(fabric: Compute, bank: MechanismBank, task: Task) -> float:
    """The seconds that the counterfactuals of an image take."""
    some = task.source.images[:FEW].to(fabric.device)
    bank.eval()
    return time_of(fabric.device, lambda: counterfactuals(fabric, bank, "source", some)) / len(some)


def counted_bytes(learner: Learner) -> float:
    """The bytes of all parameters and buffers."""
    return float(sum(tensor.nbytes for tensor in learner.state_dict().values()))
