"""Both stages in one command, interrupted where it hurts."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from support.mistakes import draw_domain
from torch import Tensor

from tcm.cli.app import main
from tcm.data import packing
from tcm.data.domains import Domain
from tcm.data.store import ImageStore
from tcm.training.run_folder import Run

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
    assert not any(name.startswith(("inverse.", "former")) for name in weights(whole))  # prediction needs neither
    assert main(["fit", *OPTIONS, "--out", str(whole)]) == 0
    assert "is finished; nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--mechanisms.batch", "0"], "error: --mechanisms.batch is 0"),
        (["--classifier.steps", "0"], "error: --classifier.steps is 0"),
        (["--classifier.batch", "1"], "error: --classifier.batch is 1"),
        (["--classifier.batch", "899"], "error: --classifier.batch is 899, but digits source has 898 images"),
        (["--classifier.method.threshold", "1.5"], "error: --classifier.method.threshold is 1.5"),
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


def test_it_loads_the_images_and_the_mechanisms_once_and_the_report_runs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("photos", "cliparts"):
        draw_domain(tmp_path / name)
    opened: list[str] = []
    loaded: list[Path] = []
    pack, load = packing.open_or_pack, Run.load_model

    def counted(domain: Domain, *options: Any, **named: Any) -> ImageStore:
        opened.append(domain.name)
        return pack(domain, *options, **named)

    monkeypatch.setattr("tcm.data.task.open_or_pack", counted)
    monkeypatch.setattr(Run, "load_model", lambda self: (loaded.append(self.folder), load(self))[1])
    folders = ["--data.source-dir", str(tmp_path / "photos"), "--data.target-dir", str(tmp_path / "cliparts")]
    small = ["--data.size", "32", "--data.crop", "32", *OPTIONS[2:-1], "--classifier.batch", "4", "-q"]
    assert main(["fit", *folders, *small, "--out", str(tmp_path / "fit")]) == 0
    assert opened == ["photos", "cliparts"]
    assert loaded == [tmp_path / "fit" / "mechanisms"]
    assert "counterfactual" in (tmp_path / "fit" / "report" / "index.html").read_text()
