"""training_loop(): the one training loop. It knows only the four methods of `Learner`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.data.stream import derived_seed
from tcm.errors import InputError, Interrupted
from tcm.progress import ProgressDisplay
from tcm.training.device import Compute
from tcm.training.divergence import explain_overflow, require_finite_weights
from tcm.training.learner import Learner
from tcm.training.loss_meter import LossMeter, describe
from tcm.training.run_folder import Run
from tcm.training.stop_requests import stop_requests
from tcm.training.tracking import Tracker

LESS_MEMORY = "lower `batch`, `data.crop` or the width of a network in a new `out`, or free some and repeat the command"


class Batches(Protocol):
    """Batches as a pure function of the step."""

    def batch(self, step: int) -> Batch:
        """The batch of this step."""
        ...


@dataclass(frozen=True)
class Schedule:
    """The length of a run, and how often it logs, evaluates and saves."""

    steps: int
    log_every: int
    evaluate_every: int
    save_every: int

    def logs_at(self, done: int) -> bool:
        """Whether a row of losses is written after this many steps."""
        return self.evaluates_at(done) or self.saves_at(done) or done % self.log_every == 0

    def evaluates_at(self, done: int) -> bool:
        """Whether the learner is evaluated after this many steps."""
        return done == self.steps or done % self.evaluate_every == 0

    def saves_at(self, done: int) -> bool:
        """Whether the state is written after this many steps."""
        return done == self.steps or done % self.save_every == 0


def training_loop(
    fabric: Compute,
    learner: Learner,
    stream: Batches,
    run: Run,
    *,
    schedule: Schedule,
    seed: int,
    evaluate: Callable[[], dict[str, float]],  # called in evaluation mode; its result becomes a row of metrics.jsonl
    conclude: Callable[[], None] = lambda: None,  # called once, before the evaluation of the last step
    title: str = "train",
    quiet: bool = False,
    tracker: Tracker | None = None,  # gets a copy of metrics.jsonl
    images: Callable[[], dict[str, NDArray[np.uint8]]] = dict,  # for the tracker, at each evaluation
) -> None:
    """Trains until `schedule.steps`, from where the run stopped. Batch, noise and rate depend on the step alone."""
    processes = run.processes
    tracker = tracker or Tracker(None, run, {})
    with run.released_on_error(), processes.explain_loss():
        training = Training(fabric, learner, stream, run, schedule.steps, seed, tracker)
        quiet = quiet or not processes.first
        with tracker.opened(), stop_requests() as stop:
            progress = ProgressDisplay(title, schedule.steps, unit="step", done=training.done, quiet=quiet)
            with progress as display:
                while training.done < schedule.steps:
                    training.step()
                    done = training.done
                    # Whether to stop is decided by all processes together, at the same step.
                    if not schedule.logs_at(done) and not processes.largest(stop.number):
                        display.update(done)
                        continue
                    display.update(done, describe(training.log_losses()))
                    if schedule.evaluates_at(done):
                        training.evaluate(evaluate, conclude, images)
                    stopping = processes.largest(stop.number)  # read once: the message is only true if it was saved
                    if stopping or schedule.saves_at(done):
                        training.save()
                    training.meter.reset()
                    if stopping and done < schedule.steps:
                        saved = f"stopped at step {done} of {schedule.steps}, saved in {run.folder}"
                        raise Interrupted(f"{saved}; repeat the command to continue", stopping)


class Training:
    """A learner with its optimizers, batches and run folder, `done` of `steps` steps into its training."""

    def __init__(
        self, fabric: Compute, learner: Learner, stream: Batches, run: Run, steps: int, seed: int, tracker: Tracker
    ):
        self.fabric, self.learner, self.stream, self.run = fabric, learner, stream, run
        self.steps, self.seed, self.tracker = steps, seed, tracker
        fabric.to_device(learner)
        self.optimizers = learner.build_optimizers()
        self.initial_rates = {
            name: [group["lr"] for group in optimizer.param_groups] for name, optimizer in self.optimizers.items()
        }
        self.done = restore(run, learner, self.optimizers, fabric.device)
        # A method may step an optimizer and use the same weights again in one update: cached casts would be stale.
        torch.set_autocast_cache_enabled(False)
        learner.train()
        self.meter = LossMeter(fabric.device)

    def step(self) -> None:
        """One training step. Batch, noise and learning rate are functions of the seed and the step."""
        step, progress = self.done, self.done / self.steps
        torch.manual_seed(derived_seed(self.seed, "noise", step))
        self.set_rates(self.learner.lr_factor(progress))
        batch = self.stream.batch(step)
        if self.fabric.device.type == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        with self.fabric.autocast(), explain_overflow(self.run, step, self.learner):
            losses = self.learner.update(batch, progress, self.optimizers)
        self.meter.add(step, losses, len(batch.source) + len(batch.target))
        self.done += 1

    def set_rates(self, factor: float) -> None:
        """Sets every learning rate to its initial value times the factor."""
        for name, optimizer in self.optimizers.items():
            for group, initial in zip(optimizer.param_groups, self.initial_rates[name], strict=True):
                group["lr"] = initial * factor

    def log_losses(self) -> dict[str, float]:
        """Writes the row of the steps since the last one; an error if a loss was not finite."""
        rate = next(iter(self.optimizers.values())).param_groups[-1]["lr"]
        row = {"lr": rate, **self.meter.summary(self.run, self.learner)}
        self.write(row)
        return row

    def write(self, row: dict[str, float]) -> None:
        """Adds a row of this step to metrics.jsonl and sends it to the tracker."""
        whole = {"step": self.done, **row}
        self.run.append_metrics(whole)
        self.tracker.log(whole)

    def evaluate(
        self,
        evaluate: Callable[[], dict[str, float]],
        conclude: Callable[[], None],
        images: Callable[[], dict[str, NDArray[np.uint8]]],
    ) -> None:
        """Writes a row of what `evaluate` returns, after `conclude` if this was the last step."""
        require_finite_weights(self.run, self.done, self.learner)
        self.learner.eval()
        if self.done == self.steps:
            conclude()
        found = evaluate()
        for name, image in images().items() if self.tracker.name else ():
            self.tracker.log_image(name, image, self.done)
        self.learner.train()
        if found:
            self.write(found)

    def save(self) -> None:
        """Writes the state that `restore` reads."""
        require_finite_weights(self.run, self.done, self.learner)
        processes = self.run.processes
        processes.copy_from_first(self.tensors())
        states: dict[str, Any] = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        state = {"step": self.done, "learner": self.learner.state_dict(), "optimizers": states}
        processes.from_first(lambda: self.run.save_state(state))
        self.tracker.saved(self.done)

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor of the state."""
        yield from (value for value in self.learner.state_dict().values() if isinstance(value, Tensor))
        for optimizer in self.optimizers.values():
            for state in optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, Tensor))


def restore(run: Run, learner: Learner, optimizers: dict[str, Optimizer], device: torch.device) -> int:
    """Loads the last state of the run, if it has one; the number of steps done."""
    where = device if run.processes.size == 1 else torch.device("cpu")  # each process has its own device
    state = run.processes.from_first(lambda: run.load_state(where))
    if state is None:
        run.forget_metrics_after(0)
        return 0
    try:
        learner.load_state_dict(state["learner"])
        for name, optimizer in optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        step = int(state["step"])
    except (KeyError, RuntimeError, ValueError) as error:
        raise InputError(f"{run.state_file} belongs to another model; delete it to start this run again") from error
    run.forget_metrics_after(step)
    return step
