"""`tcm fit --devices 2` ends with what one process finds, except for rounding. Interruptions: tests/training."""

import csv
import io
import json
import os
import signal
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from support.programs import children_of, is_alive, start, wait_for_step

from tcm.cli.app import main
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError
from tcm.pipeline.config import FitConfig
from tcm.pipeline.plan import make_plan
from tcm.pipeline.preflight import preflight
from tcm.training import processes

OPTIONS = ["fit", "--data.benchmark", "digits", "--device", "cpu", "--k", "2", "--mechanisms.steps", "6"]
OPTIONS += ["--mechanisms.batch", "4", "--steps", "6", "--batch", "8", "--save-every", "2"]


def difference(found: Path, expected: Path) -> float:
    """The largest difference of all weights of two runs; the centroids of so few steps depend on rounding."""
    one, other = (safetensors.torch.load_file(run / "model.safetensors") for run in (found, expected))
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one if not name.startswith("centroids"))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_stopped_in_a_stage_it_continues_and_ends_like_one_process(tmp_path: Path):
    out, alone = tmp_path / "fit", tmp_path / "alone"
    words = [*OPTIONS, "--devices", "2", "--out", str(out)]

    process = start([*words, "-q"])
    wait_for_step(out / "mechanisms", 2, process)
    (other,) = children_of(process.pid)
    os.kill(other, signal.SIGTERM)  # to the second process alone
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (128 + signal.SIGTERM, "")
    (line,) = stderr.splitlines()
    assert "of 6, saved in" in line
    assert not is_alive(other)

    process = start([*words, "--probabilities"])
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert stderr.count("\n") == 2  # the plan and how long it takes: one process talks
    assert stdout.count("Chosen without target labels") == 1
    for run in ("erm", "mechanisms", "tcm"):
        assert json.loads((out / run / "environment.json").read_text())["processes"] == 2
    with (out / "predictions.csv").open() as file:
        assert len(list(csv.reader(file))) == 1 + 899
    assert (out / "report" / "index.html").exists()

    assert main([*OPTIONS, "-q", "--out", str(alone)]) == 0
    assert difference(out / "erm", alone / "erm") < 1e-4
    assert difference(out / "mechanisms", alone / "mechanisms") < 0.1  # Adam: docs/scale.md
    torch.testing.assert_close(*map(first_losses, (out / "tcm", alone / "tcm")), rtol=1e-2, atol=1e-2)
    assert main([*OPTIONS, "-q", "--out", str(out)]) == 0  # finished; with another number of processes


def first_losses(run: Path) -> torch.Tensor:
    row = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    return torch.tensor([value for name, value in sorted(row.items()) if name.startswith("loss/")])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--devices", "0"], "--devices is 0; give 1 or more"),
        (["--devices", "9", "--batch", "8"], "--batch is 8, but the run has 9 processes"),
    ],
)
def test_processes_that_cannot_be(options: list[str], said: str, tmp_path: Path):
    with redirect_stderr(io.StringIO()) as stderr:
        assert main([*OPTIONS, *options, "--out", str(tmp_path / "fit")]) == 2
    (line,) = stderr.getvalue().splitlines()
    assert said in line
    assert not (tmp_path / "fit").exists()


def test_more_processes_than_images_in_a_step_of_stage_1(digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "_current", processes.Processes(size=2))
    config = FitConfig.for_images(small=True)
    one = replace(config.mechanisms, batch=1)
    config = replace(config, data=DataConfig(benchmark="digits"), mechanisms=one, device="cpu")
    with pytest.raises(InputError, match=r"`mechanisms.batch` is 1, but the run has 2 processes"):
        preflight(config, make_plan(config, digits), digits, tmp_path / "fit")
