"""Fast predictions, and what a training command says about a causal head."""

import csv
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from tcm.cli.app import main
from tcm.data import digits
from tcm.nn.generator import FrozenGenerators

TINY = ["--data.benchmark", "digits", "--batch", "4", "--device", "cpu"]
REMARK = (
    "The proxies have no effect: 0.00% of the variance of the logits comes from x_hat"  # release: one x_hat for all
)


@pytest.fixture(scope="module")
def mechanisms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage-1") / "run"
    small = ["--steps", "2", "--k", "2", "--bank.generator.width", "4", "-q"]
    assert main(["mechanisms", *TINY, *small, "--out", str(folder)]) == 0
    assert main(["transport", str(folder), "--device", "cpu", "-q"]) == 0
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for index, image in enumerate(digits.domain("target").images[:40]):
        Image.fromarray(image).save(folder / f"{index:02d}.png")
    return folder


def trained(method: str, out: Path, *options: str) -> Path:
    assert (
        main(["train", method, *TINY, "--steps", "4", "--evaluate-every", "4", *options, "-q", "--out", str(out)]) == 0
    )
    return out


def rows_of(run: Path, images: Path, *options: str) -> list[dict[str, str]]:
    table = run / "out.csv"
    assert main(["predict", str(run), str(images), "--csv", str(table), "--device", "cpu", "-q", *options]) == 0
    return list(csv.DictReader(table.open()))


def test_fast_uses_no_mechanism(mechanisms: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = trained("tcm-paper", tmp_path / "run", "--mechanisms", str(mechanisms))
    careful = rows_of(run, images)

    def refuse(*_: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a mechanism was asked")

    monkeypatch.setattr(FrozenGenerators, "forward", refuse)
    fast = rows_of(run, images, "--fast")
    assert [row["path"] for row in fast] == [row["path"] for row in careful]
    with pytest.raises(AssertionError, match="a mechanism was asked"):
        rows_of(run, images)


@pytest.mark.parametrize("form", ["tcm", "tcm-paper"])
def test_the_model_file_is_all_that_a_prediction_needs(form: str, mechanisms: Path, images: Path, tmp_path: Path):
    given = Path(shutil.copytree(mechanisms, tmp_path / "mechanisms"))
    run = trained(form, tmp_path / "run", "--mechanisms", str(given))
    expected = rows_of(run, images)
    alone = tmp_path / "alone"
    alone.mkdir()
    (run / "model.safetensors").rename(alone / "model.safetensors")
    shutil.rmtree(given)
    shutil.rmtree(run)
    assert rows_of(alone, images) == expected


def test_fast_changes_nothing_without_counterfactuals(images: Path, tmp_path: Path):
    run = trained("erm", tmp_path / "run")
    assert rows_of(run, images, "--fast") == rows_of(run, images)


def test_help_says_what_fast_gives_up_and_saves(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--fast" in shown
    assert "without its counterfactuals: faster, and in general less accurate" in shown


def test_training_tells_what_is_wrong_with_the_head(
    mechanisms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    trained("tcm-release", tmp_path / "run", "--mechanisms", str(mechanisms))
    assert REMARK in capsys.readouterr().out.splitlines()


def test_training_says_nothing_of_a_head_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trained("erm", tmp_path / "run")
    assert "W3" not in (shown := capsys.readouterr().out)
    assert "prox" not in shown
