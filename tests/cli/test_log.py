"""--log in the command line. tests/test_pipeline.py shows that no model changes by it."""

import sys
from pathlib import Path

import pytest
from PIL import Image
from support.logs import logged_steps
from support.mistakes import refusal

from tcm.cli.app import main
from tcm.training.run_folder import Run

DIGITS = ["--data.benchmark", "digits", "--device", "cpu", "-q"]
MECHANISMS = ["mechanisms", *DIGITS, "--steps", "2", "--batch", "2", "--k", "2", "--save-every", "2"]


def test_mechanisms_log_images(tmp_path: Path):
    run = Run(tmp_path / "run")
    assert main([*MECHANISMS, "--out", str(run.folder), "--log", "csv"]) == 0
    assert logged_steps(run.folder) == [row["step"] for row in run.metrics()]
    assert "log" not in run.config()
    with Image.open(run.folder / "log" / "images" / "mechanisms-000002.png") as image:
        assert image.size == (3 * 32 + 2 * 2, 4 * 32 + 3 * 2)  # the image and k = 2; four rows


def test_a_run_is_continued_with_another_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    words = ["train", "erm", *DIGITS, "--steps", "4", "--batch", "4", "--save-every", "2", "--out", str(tmp_path)]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tcm.classifier.train.finish_training", stop)  # which comes after the last step
        assert main([*words, "--log", "tensorboard"]) == 130
    assert main([*words, "--log", "csv"]) == 0
    assert logged_steps(tmp_path) == [row["step"] for row in Run(tmp_path).metrics()]
    assert {"csv", "tensorboard"} <= {path.name for path in (tmp_path / "log").iterdir()}


@pytest.mark.parametrize("command", ["train erm", "mechanisms", "fit", "bench digits"])
def test_a_missing_package_is_one_line_before_the_first_step(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    data = [] if command.startswith("bench") else ["--data.benchmark", "digits"]
    line = refusal(capfd, [*command.split(), *data, "--out", str(tmp_path / "out"), "--log", "wandb"])
    assert "--log is wandb" in line
    assert "pip install 'tcm[track]'" in line
    assert not (tmp_path / "out").exists()


def test_an_unknown_tracker_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    line = refusal(capfd, [*MECHANISMS, "--out", str(tmp_path / "out"), "--log", "mlflow"])
    assert "--log" in line
    assert "'wandb'" in line
