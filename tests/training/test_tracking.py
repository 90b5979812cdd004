import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.training.device import make_fabric
from tcm.training.learner import Learner
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_folder import Run
from tcm.training.tracking import Tracker, TrackerName, require_tracker


class Slope(Learner):
    """One weight that falls by 0.1 in each step. It fails at a step of its choice."""

    lr_fields = ("slope.lr",)
    min_steps_to_compile = 100

    def __init__(self, fails_at: int | None = None):
        super().__init__()
        self.weight, self.fails_at = nn.Parameter(torch.ones(1)), fails_at

    def build_optimizers(self) -> dict[str, Optimizer]:
        return {"sgd": SGD(self.parameters(), lr=0.1)}

    def lr_factor(self, progress: float) -> float:
        return 1.0

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        if self.fails_at == round(progress * 20):
            raise ConnectionError("the power is gone")
        loss = (self.weight * batch.source.mean()).sum()
        optimizers["sgd"].zero_grad()
        loss.backward()
        optimizers["sgd"].step()
        return {"slope": loss.detach()}

    def accelerate(self) -> None: ...


class Ones:
    def batch(self, step: int) -> Batch:
        return Batch(torch.ones(2, 1), torch.zeros(2), torch.ones(2, 1))


def run_slope(folder: Path, log: TrackerName | None, fails_at: int | None = None) -> Run:
    """20 steps: a row every 2, an evaluation with an image every 5, a checkpoint every 6."""
    run, learner = Run(folder), Slope(fails_at)
    run.start({})
    training_loop(
        make_fabric("cpu", "fp32"),
        learner,
        Ones(),
        run,
        schedule=Schedule(steps=20, log_every=2, evaluate_every=5, save_every=6),
        seed=0,
        evaluate=lambda: {"target/accuracy": 0.5},
        quiet=True,
        tracker=Tracker(log, run, {"seed": 0}),
        images=lambda: {"grid": np.full((4, 6, 3), 200, np.uint8)},
    )
    run.release()
    return run


def interrupted(folder: Path, log: TrackerName) -> Run:
    """A run that fails after step 11, with a checkpoint at step 6, and is continued."""
    with pytest.raises(ConnectionError):
        run_slope(folder, log, fails_at=11)
    return run_slope(folder, log)


def csv_rows(run: Run) -> list[dict[str, float]]:
    with (run.folder / "log" / "csv" / "metrics.csv").open() as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


def events(run: Run) -> EventAccumulator:
    found = EventAccumulator(str(run.folder / "log" / "tensorboard"))
    found.Reload()
    return found


@pytest.mark.parametrize("make", [run_slope, interrupted])
def test_the_csv_file_has_the_rows_of_metrics_jsonl(make: Callable[..., Run], tmp_path: Path):
    run = make(tmp_path / "run", "csv")
    assert len(run.metrics()) > 10
    assert csv_rows(run) == run.metrics()
    images = sorted((run.folder / "log" / "images").iterdir())
    assert [image.name for image in images] == [f"grid-{step:06d}.png" for step in (5, 10, 15, 20)]
    with Image.open(images[0]) as image:
        assert image.size == (6, 4)


@pytest.mark.parametrize("make", [run_slope, interrupted])
def test_tensorboard_has_every_step_once(make: Callable[..., Run], tmp_path: Path):
    run = make(tmp_path / "run", "tensorboard")
    found, rows = events(run), [row for row in run.metrics() if "loss/slope" in row]
    losses = found.Scalars("loss/slope")
    assert [event.step for event in losses] == [row["step"] for row in rows]
    assert [event.value for event in losses] == pytest.approx([row["loss/slope"] for row in rows])
    assert [event.step for event in found.Scalars("target/accuracy")] == [5, 10, 15, 20]
    assert [event.step for event in found.Images("grid")] == [5, 10, 15, 20]


def test_a_run_may_be_continued_with_another_tracker(tmp_path: Path):
    with pytest.raises(ConnectionError):
        run_slope(tmp_path / "run", "tensorboard", fails_at=7)
    with pytest.raises(ConnectionError):
        run_slope(tmp_path / "run", None, fails_at=13)
    with pytest.raises(ConnectionError):
        run_slope(tmp_path / "run", "csv", fails_at=19)
    run = run_slope(tmp_path / "run", "tensorboard")
    every = [row["step"] for row in run.metrics() if "loss/slope" in row]
    assert [event.step for event in events(run).Scalars("loss/slope")] == every


def test_logging_changes_no_tensor(tmp_path: Path):
    states = [run_slope(tmp_path / str(log), log).load_state(torch.device("cpu")) for log in (None, "csv")]
    assert states[0] is not None
    assert states[1] is not None
    assert torch.equal(states[0]["learner"]["weight"], states[1]["learner"]["weight"])
    assert not (tmp_path / "None" / "log").exists()


class FakeService(ModuleType):
    """Stands for wandb or trackio, which the tests need not install: it keeps what a run is sent."""

    def __init__(self, name: str):
        super().__init__(name)
        self.started: list[dict[str, Any]] = []
        self.rows: list[tuple[int, list[str]]] = []
        self.ended = 0
        self.Image, self.Settings = np.asarray, dict
        self.name, self.id, self.config = "run", "id", {}

    def init(self, **settings: Any) -> "FakeService":
        self.started.append(settings)
        return self

    def log(self, row: dict[str, Any], step: int) -> None:
        self.rows.append((step, list(row)))

    def finish(self, exit_code: int = 0) -> None:
        self.ended += 1


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_services_get_every_step_once(name: TrackerName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    service = FakeService(name)
    monkeypatch.setitem(sys.modules, name, service)
    run = interrupted(tmp_path / "run", name)
    losses = [step for step, names in service.rows if "loss/slope" in names]
    assert losses == [row["step"] for row in run.metrics() if "loss/slope" in row]
    assert [step for step, names in service.rows if "grid" in names] == [5, 10, 15, 20]
    # Both processes speak of one run, and end it.
    first, second = service.started
    assert first == second
    assert first["resume"] == "allow"
    assert first["config"] == {"seed": 0}
    assert service.ended == 2


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_service_that_does_not_start_is_one_line(name: TrackerName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    service = FakeService(name)
    monkeypatch.setitem(sys.modules, name, service)
    monkeypatch.delattr(FakeService, "init")
    with pytest.raises(InputError, match=rf"`log` is {name}, which did not start .*; .*repeat the command"):
        run_slope(tmp_path / "run", name)
    assert not any("loss/slope" in row for row in Run(tmp_path / "run").metrics())


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_missing_package_is_one_line_with_the_remedy(name: TrackerName, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"`log` is {name}.*pip install 'tcm\[track\]'"):
        require_tracker(name)
    require_tracker(None)
    require_tracker("csv")


def test_a_run_without_a_log_writes_none(tmp_path: Path):
    run = run_slope(tmp_path / "run", None)
    assert sorted(file.name for file in run.folder.iterdir() if not file.name.startswith(".")) == [
        "config.json",
        "metrics.jsonl",
        "state.pt",
    ]
    assert "log" not in json.loads(run.config_file.read_text())
