import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from tcm.data.batch import Batch
from tcm.errors import InputError, Interrupted
from tcm.training.device import make_fabric
from tcm.training.files import lock
from tcm.training.learner import Learner
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_config import RunConfig, prepare_learner
from tcm.training.run_folder import Run


class Line(Learner):
    """The smallest learner: one weight, a loss that a test may spoil at a step."""

    lr_fields = ("line.lr",)
    min_steps_to_compile = 100
    accelerated = False

    def __init__(self, bad_step: int | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.bad_step = bad_step
        self.noise: list[float] = []

    def build_optimizers(self) -> dict[str, Optimizer]:
        return {"sgd": SGD(self.parameters(), lr=0.1)}

    def lr_factor(self, progress: float) -> float:
        return 1 - progress

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        self.noise.append(torch.rand(()).item())
        loss = (self.weight * batch.source.mean()).sum()
        if self.bad_step is not None and round(progress * 10) == self.bad_step:
            loss = loss * float("nan")
        optimizers["sgd"].zero_grad()
        loss.backward()
        optimizers["sgd"].step()
        return {"line": loss.detach()}

    def accelerate(self) -> None:
        self.accelerated = True


class Ones:
    def batch(self, step: int) -> Batch:
        return Batch(torch.ones(2, 1), torch.zeros(2), torch.ones(2, 1))


def run_fit(learner: Learner, folder: Path, save_every: int = 3) -> Run:
    run = Run(folder)
    run.start({})
    schedule = Schedule(steps=10, log_every=2, evaluate_every=5, save_every=save_every)
    evaluate = {"target/accuracy": 0.5}
    training_loop(
        make_fabric("cpu", "fp32"),
        learner,
        Ones(),
        run,
        schedule=schedule,
        seed=0,
        evaluate=lambda: evaluate,
        quiet=True,
    )
    return run


def test_rows_are_written_at_their_steps(tmp_path: Path):
    run = run_fit(Line(), tmp_path / "run")
    rows = run.metrics()
    assert [row["step"] for row in rows if "target/accuracy" in row] == [5, 10]
    losses = [row for row in rows if "loss/line" in row]
    assert [row["step"] for row in losses] == [2, 3, 4, 5, 6, 8, 9, 10]
    assert losses[0]["loss/line"] == pytest.approx((1 + 0.9) / 2)
    assert losses[0]["lr"] == pytest.approx(0.1 * 0.9)


def test_noise_depends_on_the_step_alone(tmp_path: Path):
    one, two = Line(), Line()
    run_fit(one, tmp_path / "one")
    torch.rand(100)
    run_fit(two, tmp_path / "two", save_every=4)
    assert one.noise == two.noise
    assert len(set(one.noise)) == 10


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_state(tmp_path: Path):
    with pytest.raises(
        InputError, match=r"not finite at step 8 \(line\); .*holds the last good state; lower `line.lr`"
    ):
        run_fit(Line(bad_step=7), tmp_path / "run")
    state = Run(tmp_path / "run").load_state(torch.device("cpu"))
    assert state is not None
    assert state["step"] == 6
    assert torch.isfinite(state["learner"]["weight"]).all()


class Spoiled(Line):
    """Its weight is lost in the last update before an evaluation, and no loss tells of it."""

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        losses = super().update(batch, progress, optimizers)
        if round(progress * 10) == 4:
            self.weight.data.fill_(float("nan"))
        return losses


def test_weights_that_are_not_finite_are_not_evaluated(tmp_path: Path):
    with pytest.raises(InputError, match=r"weights are not finite after step 5; .*holds the last good state"):
        run_fit(Spoiled(), tmp_path / "run")
    assert not any("target/accuracy" in row for row in Run(tmp_path / "run").metrics())


def test_a_state_of_another_model_is_refused(tmp_path: Path):
    run_fit(Line(), tmp_path / "run")
    other = Line()
    other.second = nn.Parameter(torch.ones(2))
    with pytest.raises(InputError, match="belongs to another model"):
        run_fit(other, tmp_path / "run")


@pytest.mark.parametrize(("wish", "expected"), [("on", True), ("auto", False), ("off", False)])
def test_on_a_cpu_a_learner_is_accelerated_when_asked(wish: Literal["on", "auto", "off"], expected: bool):
    line = Line()
    prepare_learner(make_fabric("cpu", "fp32"), line, RunConfig(steps=1000, evaluate_every=10, compile=wish))
    assert line.accelerated == expected


def test_training_works_in_a_thread_of_a_program(tmp_path: Path):
    with ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(run_fit, Line(), tmp_path / "run").result().metrics()) == 10


def test_a_signal_during_an_evaluation_saves_that_step(tmp_path: Path):
    run = Run(tmp_path / "run")
    run.start({})
    schedule = Schedule(steps=10, log_every=2, evaluate_every=5, save_every=100)

    def evaluate() -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        return {}

    with pytest.raises(Interrupted, match="stopped at step 5 of 10, saved in"):
        training_loop(
            make_fabric("cpu", "fp32"), Line(), Ones(), run, schedule=schedule, seed=0, evaluate=evaluate, quiet=True
        )
    state = run.load_state(torch.device("cpu"))
    assert state is not None
    assert state["step"] == 5
    with lock(run.folder):  # a notebook that holds the run may continue it
        pass
