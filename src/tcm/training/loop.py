"""training_loop(): the one training loop. It knows nothing of the learner but the four methods of `Learner`."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.data.stream import derived_seed
from tcm.errors import InputError, Interrupted
from tcm.progress import ProgressDisplay
from tcm.training.learner import Learner
from tcm.training.run_folder import Run

LESS_MEMORY = "lower --batch, --data.crop or a network's width in a new --out, or repeat the command where more is free"


class Batches(Protocol):
    """Batches as a pure function of the step."""

    def batch(self, step: int) -> Batch:
        """The batch of this step."""
        ...


@dataclass(frozen=True)
class Schedule:
    """How long a run is and how often it looks up."""

    steps: int
    log_every: int
    evaluate_every: int
    save_every: int

    def logs_at(self, done: int) -> bool:
        """Whether a row is written after so many steps."""
        return self.evaluates(done) or self.saves(done) or done % self.log_every == 0

    def evaluates(self, done: int) -> bool:
        """Whether the learner is evaluated after so many steps."""
        return done == self.steps or done % self.evaluate_every == 0

    def saves(self, done: int) -> bool:
        """Whether the state is written after so many steps."""
        return done == self.steps or done % self.save_every == 0


def training_loop(
    fabric: Fabric,
    learner: Learner,
    stream: Batches,
    run: Run,
    *,
    schedule: Schedule,
    seed: int,
    evaluate: Callable[[], dict[str, float]],
    conclude: Callable[[], None] = lambda: None,
    title: str = "train",
    quiet: bool = False,
) -> None:
    """Trains until `schedule.steps`, from where the run stopped. Batch, noise and rate depend on the step alone.

    `conclude` is called once, before the evaluation of the last step.
    """
    fabric.to_device(learner)
    optimizers = learner.build_optimizers()
    base_rates = {name: [group["lr"] for group in opt.param_groups] for name, opt in optimizers.items()}
    first = restore(run, learner, optimizers, fabric.device)
    # Methods may step an optimizer and then use the same weights again in one update: no stale casts, please.
    torch.set_autocast_cache_enabled(False)
    learner.train()
    meter = LossMeter(fabric.device)
    with (
        stop_requests() as stop,
        ProgressDisplay(title, schedule.steps, unit="step", done=first, quiet=quiet) as display,
    ):
        for step in range(first, schedule.steps):
            # One step: the batch, the noise and the learning rate are functions of (seed, step).
            torch.manual_seed(derived_seed(seed, "noise", step))
            progress = step / schedule.steps
            set_rates(optimizers, base_rates, learner.lr_factor(progress))
            batch = stream.batch(step)
            if fabric.device.type == "cuda":
                torch.compiler.cudagraph_mark_step_begin()
            with fabric.autocast(), explain_overflow(run, step, learner):
                losses = learner.update(batch, progress, optimizers)
            meter.add(step, losses, len(batch.source) + len(batch.target))

            # Looking up: what is shown, written and saved. A loss that is not finite never reaches the disk.
            done = step + 1
            if not schedule.logs_at(done) and not stop.requested:
                display.update(done)
                continue
            row = {"lr": next(iter(optimizers.values())).param_groups[-1]["lr"], **meter.close(run, learner)}
            run.append_metrics({"step": done, **row})
            display.update(done, describe(row))
            if schedule.evaluates(done):
                require_finite(run, done, learner)
                learner.eval()
                if done == schedule.steps:
                    conclude()
                found = evaluate()
                learner.train()
                if found:
                    run.append_metrics({"step": done, **found})
            stopping = stop.requested  # asked once: what is said to be saved was saved
            if stopping or schedule.saves(done):
                save(run, done, learner, optimizers)
            meter.begin()
            if stopping and done < schedule.steps:
                raise stopped(run, done, schedule.steps, stop.number)


def restore(run: Run, learner: Learner, optimizers: dict[str, Optimizer], device: torch.device) -> int:
    """Loads the run's last state, if it has one; the number of steps done."""
    state = run.load_state(device)
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


def save(run: Run, step: int, learner: Learner, optimizers: dict[str, Optimizer]) -> None:
    """Writes the state from which `restore` goes on."""
    require_finite(run, step, learner)
    states: dict[str, Any] = {name: optimizer.state_dict() for name, optimizer in optimizers.items()}
    run.save_state({"step": step, "learner": learner.state_dict(), "optimizers": states})


def require_finite(run: Run, step: int, learner: Learner) -> None:
    """An error where weights have run away: neither can they be evaluated nor is there anything to go on from."""
    if not all(bool(value.isfinite().all()) for value in learner.state_dict().values()):
        raise diverged(run, learner, f"the weights are not finite after step {step}")


def set_rates(optimizers: dict[str, Optimizer], base_rates: dict[str, list[float]], factor: float) -> None:
    """Every group's learning rate is its initial one times the factor."""
    for name, optimizer in optimizers.items():
        for group, base in zip(optimizer.param_groups, base_rates[name], strict=True):
            group["lr"] = base * factor


def diverged(run: Run, learner: Learner, found: str) -> InputError:
    """The error that ends a run whose numbers have run away."""
    state = f"{run.state_file} holds the last good state" if run.state_file.exists() else "nothing was saved yet"
    remedy = f"lower {learner.rate_option} in a new --out, or look for broken images with tcm data check"
    return InputError(f"{found}; {state}; {remedy}")


@contextmanager
def explain_overflow(run: Run, step: int, learner: Learner) -> Iterator[None]:
    """Ends the run where an optimizer has a factor that float32 cannot hold, which torch calls no more than an error.

    The rate itself may still be within: Adam's first step divides it by 1 - beta1.
    """
    try:
        yield
    except RuntimeError as error:
        if "without overflow" not in str(error):
            raise
        raise diverged(run, learner, f"step {step + 1} would change the weights by more than float32 holds") from error


def stopped(run: Run, done: int, steps: int, number: int) -> Interrupted:
    """The error that ends a run which a signal of that number asked to stop."""
    saved = f"stopped at step {done} of {steps}, saved in {run.folder}"
    return Interrupted(f"{saved}; repeat the command to continue", number)


class LossMeter:
    """Adds up losses on the device, so that looking at them waits for the device only when a row is written."""

    def __init__(self, device: torch.device):
        self.device = device
        self.first_bad = torch.full((), -1, device=device)
        self.begin()

    def begin(self) -> None:
        """Forgets the sums and starts the clock."""
        self.sums: dict[str, Tensor] = {}
        self.finite: dict[int, tuple[list[str], Tensor]] = {}  # by step, the losses' names and whether each is finite
        self.steps = self.images = 0
        self.started = _now(self.device)

    def add(self, step: int, losses: dict[str, Tensor], images: int) -> None:
        """Counts one step's losses."""
        for name, loss in losses.items():
            self.sums[name] = self.sums[name] + loss if name in self.sums else loss.float()
        finite = torch.isfinite(torch.stack(list(losses.values())))
        self.finite[step] = list(losses), finite
        self.first_bad = torch.where((self.first_bad < 0) & ~finite.all(), step, self.first_bad)
        self.steps += 1
        self.images += images

    def close(self, run: Run, learner: Learner) -> dict[str, float]:
        """Mean losses and the rate since the last row; a loss that was not finite stops the run."""
        bad = int(self.first_bad)
        if bad >= 0:
            terms = ", ".join(name for name, finite in zip(*self.finite[bad], strict=True) if not finite)
            raise diverged(run, learner, f"the loss is not finite at step {bad + 1} ({terms})")
        seconds = max(_now(self.device) - self.started, 1e-9)
        # A learner may report more than losses: a name with a stroke, such as wins/source/0, says itself what it is.
        row = {name if "/" in name else f"loss/{name}": float(total) / self.steps for name, total in self.sums.items()}
        row |= {"images_per_second": self.images / seconds, "seconds": seconds}
        return row


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def describe(row: dict[str, float]) -> str:
    """The losses and the learning rate in a few words."""
    losses = [f"{name.removeprefix('loss/')} {value:.3f}" for name, value in row.items() if name.startswith("loss/")]
    return "  ".join([*losses, f"lr {row['lr']:.2g}"])


class StopRequest:
    """Whether a signal asked the loop to stop, and which."""

    requested = False
    number = 0


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turns the first Ctrl-C or SIGTERM into a request that the loop honours; a second one ends it at once.

    Only the main thread of a program is told of signals: in another, as in a server that trains, none is waited for.
    """
    request = StopRequest()

    def ask(number: int, frame: object) -> None:
        if request.requested:
            raise KeyboardInterrupt
        request.requested, request.number = True, number

    is_main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM) if is_main}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
