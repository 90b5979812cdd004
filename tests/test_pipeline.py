"""Both stages in one command, interrupted where it hurts."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from tcm.cli.app import main

OPTIONS = ["--data.benchmark", "digits", "--device", "cpu", "--mechanisms.k", "2", "--mechanisms.steps", "4"]
OPTIONS += ["--mechanisms.batch", "4", "--classifier.steps", "4", "--classifier.batch", "8", "-q"]


def weights(out: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(out / "classifier" / "model.safetensors")


def start(out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tcm", "fit", *OPTIONS, "--out", str(out)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.Popen[bytes]]:
    """A fit that nothing disturbs. It goes on beside the first test, on a core that is free."""
    out = tmp_path_factory.mktemp("whole") / "fit"
    return out, start(out)


@pytest.fixture(scope="module")
def whole(undisturbed: tuple[Path, subprocess.Popen[bytes]]) -> Path:
    """The same when it has ended."""
    out, process = undisturbed
    assert process.wait(120) == 0
    return out


def test_killed_in_either_stage_it_goes_on_to_the_same_model(
    undisturbed: tuple[Path, subprocess.Popen[bytes]], tmp_path: Path
):
    out = tmp_path / "fit"
    for file in ("mechanisms/config.json", "mechanisms/transported", "classifier/config.json"):
        process = start(out)
        deadline = time.monotonic() + 120
        while not (out / file).exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
        process.wait()
        assert (out / file).exists()
        assert not (out / "classifier" / "model.safetensors").exists()
    assert start(out).wait(120) == 0
    whole, process = undisturbed
    assert process.wait(120) == 0
    found, expected = weights(out), weights(whole)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_it_leaves_mechanisms_counterfactuals_a_classifier_and_a_page(whole: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("mechanisms/model.safetensors", "mechanisms/transported/target/images.npy", "report/index.html"):
        assert (whole / name).exists()
    assert any(name.startswith("inverse.1.") for name in weights(whole))
    assert main(["fit", *OPTIONS, "--out", str(whole)]) == 0
    assert "is finished; nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--mechanisms.batch", "0"], "error: --mechanisms.batch is 0"),
        (["--classifier.steps", "0"], "error: --classifier.steps is 0"),
        (["--classifier.batch", "1"], "error: --classifier.batch is 1"),
        (["--classifier.batch", "899"], "error: --classifier.batch is 899, but digits source has 898 images"),
        (["--classifier.method.agreement", "-1"], "error: --classifier.method.agreement is -1.0"),
        (["--mechanisms.bank.score", "papper"], "papper"),
    ],
)
def test_a_mistake_in_either_stage_is_told_before_the_first_by_its_option(
    options: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    given = dict(zip(OPTIONS[:-1:2], OPTIONS[1:-1:2], strict=True)) | dict([options])
    words = [word for pair in given.items() for word in pair]
    assert main(["fit", *words, "--out", str(tmp_path / "fit")]) == 2
    assert said in capfd.readouterr().err
    assert not (tmp_path / "fit").exists()
