"""From two folders to a classifier in one command, interrupted where it hurts."""

import csv
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from support.logs import logged_steps
from support.mistakes import draw_domain
from torch import Tensor

from tcm.cli.app import main
from tcm.data import packing
from tcm.data.domains import Domain
from tcm.data.store import ImageStore
from tcm.data.task import DataConfig, Task, load_task
from tcm.errors import InputError
from tcm.estimation.estimate import Estimate
from tcm.nn.backbone import BackboneConfig
from tcm.pipeline import preflight
from tcm.pipeline.choice import chosen_by
from tcm.pipeline.config import FitConfig
from tcm.pipeline.fit import how_long
from tcm.pipeline.folder import default_out
from tcm.pipeline.plan import RIVALS, data_for_fit, epochs_in_steps, make_plan
from tcm.pipeline.preflight import TimeEstimate
from tcm.training.run_folder import Run

OPTIONS = ["--data.benchmark", "digits", "--device", "cpu", "--k", "2", "--mechanisms.steps", "4"]
OPTIONS += ["--mechanisms.batch", "4", "--steps", "4", "--batch", "8", "-q"]
STAGES = ("erm/config.json", "mechanisms/config.json", "mechanisms/transported", "tcm/config.json")


def model(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def weights(run: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(run / "model.safetensors")


def start(out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tcm", "fit", *OPTIONS, "--out", str(out), *more]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.Popen[bytes]]:
    """A fit that nothing disturbs. It goes on beside the first test, on a core that is free."""
    out = tmp_path_factory.mktemp("whole") / "fit"
    return out, start(out)


@pytest.fixture(scope="module")
def whole(undisturbed: tuple[Path, subprocess.Popen[bytes]]) -> Path:
    """The same when it has ended."""
    out, process = undisturbed
    assert process.wait(300) == 0
    return out


def test_killed_in_any_stage_it_goes_on_to_the_same_model_file(
    undisturbed: tuple[Path, subprocess.Popen[bytes]], tmp_path: Path
):
    out = tmp_path / "fit"
    for file in STAGES:
        process = start(out, "--log", "csv")
        deadline = time.monotonic() + 300
        while not (out / file).exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
        process.wait()
        assert (out / file).exists()
        assert not (out / "model.safetensors").exists()
    assert start(out, "--log", "csv").wait(300) == 0
    whole, process = undisturbed
    assert process.wait(300) == 0
    assert model(out) == model(whole)
    for run in ("erm", "mechanisms", "tcm"):
        found, expected = weights(out / run), weights(whole / run)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert model(out / run) == model(whole / run)  # the one logs its metrics, the other does not
        assert logged_steps(out / run) == [row["step"] for row in Run(out / run).metrics()]
    assert "log" not in json.loads((out / "fit.json").read_text())["config"]


def test_no_path_of_this_machine_is_in_a_model(whole: Path):
    for file in whole.rglob("model.safetensors"):
        with safetensors.safe_open(file, framework="pt") as opened:
            about = opened.metadata()["tcm"]
        assert str(whole.parent) not in about
        assert "/" not in about.replace("source/accuracy", "")


def test_it_leaves_all_runs_predictions_a_model_and_a_page(whole: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("mechanisms/transported/target/images.npy", "report/index.html", "erm/evaluation.json"):
        assert (whole / name).exists()
    chosen = json.loads((whole / "fit.json").read_text())["chosen"]
    assert model(whole) == model(whole / chosen)
    assert not any(name.startswith(("inverse.", "former")) for name in weights(whole / "tcm"))  # nothing needs them
    with (whole / "predictions.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["path", "class", "confidence"]
    assert len(rows) == 1 + 899
    before = model(whole)
    assert main(["fit", *OPTIONS, "--probabilities", "--out", str(whole)]) == 0
    assert f"Chosen without target labels: {chosen}" in capsys.readouterr().out
    assert model(whole) == before
    with (whole / "predictions.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0][3:] == [str(digit) for digit in range(10)]
    for row in rows[1:]:
        shares = [float(share) for share in row[3:]]
        assert sum(shares) == pytest.approx(1, abs=1e-4)
        assert row[1] == str(shares.index(max(shares)))
        assert float(row[2]) == pytest.approx(max(shares), abs=1e-4)


def test_its_folder_is_taken_wherever_a_run_is(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["evaluate", str(whole), "--device", "cpu", "-q"]) == 0
    assert main(["report", str(whole), "--out", str(tmp_path / "page"), "-q"]) == 0
    assert "mechanism" in (tmp_path / "page" / "index.html").read_text()
    assert main(["figure", "mechanisms", str(whole), "--out", str(tmp_path / "m.png"), "-q"]) == 0
    assert main(["figure", "accuracy", str(whole), "--out", str(tmp_path / "a.png"), "-q"]) == 0
    assert main(["transport", str(whole), "-q", "--device", "cpu"]) == 0
    assert "is finished" in capsys.readouterr().out
    assert main(["compare", str(whole), "-q"]) == 0
    compared = capsys.readouterr().out
    assert "│ erm " in compared
    assert "│ tcm " in compared
    options = ["--data.benchmark", "digits", "--device", "cpu", "--steps", "1", "--batch", "4", "-q"]
    taken = ["train", "tcm", *options, "--mechanisms", str(whole), "--out", str(tmp_path / "tcm")]
    assert main(taken) == 0


def test_other_settings_need_another_folder(whole: Path, capfd: pytest.CaptureFixture[str]):
    assert main(["fit", *OPTIONS, "--seed", "1", "--out", str(whole)]) == 2
    assert "holds a fit with other settings (seed: 0 -> 1)" in capfd.readouterr().err
    longer = [*OPTIONS, "--steps", "8", "--out", str(whole)]
    assert main(["fit", *longer]) == 2
    said = capfd.readouterr().err
    assert "holds a fit of another length (steps: 4 -> 8): learning rates" in said
    assert "so it cannot be extended; choose another folder" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--mechanisms.batch", "0"], "error: --mechanisms.batch is 0"),
        (["--mechanisms.batch", "900"], "error: --mechanisms.batch is 900, but digits source has 898 images"),
        (["--steps", "0"], "error: --steps is 0"),
        (["--batch", "1"], "error: --batch is 1"),
        (["--batch", "899"], "error: --batch is 899, but digits source has 7"),
        (["--method.threshold", "1.5"], "error: --method.threshold is 1.5"),
        (["--mechanisms.bank.score", "papper"], "papper"),
        (["--k", "-1"], "error: --k is -1"),
    ],
)
def test_a_mistake_in_any_stage_is_named_before_the_first_by_its_option(
    options: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    given = dict(zip(OPTIONS[:-1:2], OPTIONS[1:-1:2], strict=True)) | dict([options])
    words = [word for pair in given.items() for word in pair]
    assert main(["fit", *words, "--out", str(tmp_path / "fit")]) == 2
    assert said in capfd.readouterr().err
    assert not (tmp_path / "fit").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no data is given; name two folders"),
        (["photos"], "one folder is given; give two"),
        (["photos", "cliparts", "--data.benchmark", "digits"], "two folders are given and so are options"),
        (["photos", "nowhere"], "nowhere: No such file"),
        (["photos", "cliparts", "--frozen"], "--frozen needs a pretrained network"),
    ],
)
def test_folders_that_cannot_be_used_are_named(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "cliparts"):
        draw_domain(tmp_path / name)
    assert main(["fit", *words, "--device", "cpu"]) == 2
    assert said in capfd.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_a_disk_without_room_is_named_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: preflight.shutil._ntuple_diskusage(10, 9, 1000))
    assert main(["fit", *OPTIONS, "--out", str(tmp_path / "fit")]) == 2
    said = capfd.readouterr().err
    assert "error: --out needs" in said
    assert "but its disk has 1.0 kB free" in said
    assert not (tmp_path / "fit").exists()


def test_missing_weights_are_named_before_an_image_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for name in ("photos", "cliparts"):
        draw_domain(tmp_path / name, side=80)
    monkeypatch.setattr("tcm.data.task.open_or_pack", lambda *_, **__: pytest.fail("images were read"))
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "photos", "cliparts", "--device", "cpu", "--backbone.weights", "gone.safetensors"]) == 2
    assert capfd.readouterr().err == "error: --backbone.weights gone.safetensors does not exist; check the path\n"


def test_a_doubtful_folder_is_reported_in_one_line(tmp_path: Path):
    """The folders are read three times: for the defaults of the options, for the size of the images, and for good."""
    for name in ("photos", "cliparts"):
        draw_domain(tmp_path / name)
    for number in range(1, 4):
        (tmp_path / "photos" / "hat" / f"{number}.jpg").unlink()
    command = [sys.executable, "-m", "tcm", "fit", "photos", "cliparts", "--batch", "1000", "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "UserWarning" not in done.stderr
    assert done.stderr.count("has only one image for 1 of its 3 classes: hat; add images of them") == 1


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
    monkeypatch.chdir(tmp_path)
    small = ["--data.size", "32", "--device", "cpu", "--k", "2", "--steps", "2", "--mechanisms.steps", "2", "-q"]
    assert main(["fit", "photos", "cliparts", *small]) == 0
    out = Path("runs/photos-to-cliparts")
    assert opened == ["photos", "cliparts"]
    assert loaded == [out / "mechanisms"]
    assert "counterfactual" in (out / "report" / "index.html").read_text()


def test_the_default_folder_is_named_by_the_domains(tmp_path: Path):
    two = DataConfig(source_dir=tmp_path / "photos", target_dir=tmp_path / "cliparts")
    assert default_out(two) == Path("runs/photos-to-cliparts")
    assert default_out(DataConfig(benchmark="digits")) == Path("runs/digits")
    assert default_out(DataConfig(root=tmp_path, source="Art", target="Clipart")) == Path("runs/Art-to-Clipart")


def test_small_images_are_recognised_by_their_files(tmp_path: Path):
    for name in ("photos", "cliparts"):
        draw_domain(tmp_path / name)  # 40 x 40
    found = data_for_fit(DataConfig(source_dir=tmp_path / "photos", target_dir=tmp_path / "cliparts"))
    assert (found.size, found.crop, found.shift, found.is_small) == (40, 40, 2, True)
    asked = data_for_fit(DataConfig(source_dir=tmp_path / "photos", target_dir=tmp_path / "cliparts", size=256))
    assert (asked.size, asked.crop, asked.is_small) == (256, None, False)


def test_steps_follow_the_number_of_images():
    assert epochs_in_steps(900, 32, 20, 600, 6000) == 600
    assert epochs_in_steps(4365, 32, 30, 1000, 10000) == 4100
    assert epochs_in_steps(10**6, 32, 30, 1000, 10000) == 10000


def plan_of(task: Task, **settings: Any) -> Any:
    return make_plan(FitConfig(data=DataConfig(benchmark="digits"), device="cpu", **settings), task)


def test_small_images_have_both_stages_and_photographs_have_not(digits: Task, monkeypatch: pytest.MonkeyPatch):
    assert plan_of(digits).stages == ("erm", "mechanisms", "counterfactuals", "tcm")
    assert plan_of(digits, k=0).stages == ("erm", "tcm-control")
    assert plan_of(digits, k=0, compare=True).methods == ("erm", "cdan-e", "mcc", "fixmatch", "tcm-control")
    monkeypatch.setattr(DataConfig, "is_small", property(lambda _: False))
    assert plan_of(digits).methods == ("erm", "self-training")  # no GPU
    assert plan_of(digits, frozen=False).stages == ("erm", "tcm-control")
    assert plan_of(digits, frozen=False, k=4).stages == ("erm", "mechanisms", "counterfactuals", "tcm")
    with pytest.raises(InputError, match="`k` is not used"):
        plan_of(digits, k=4)


def test_a_network_that_is_not_trained_sees_whole_images_in_bf16_where_that_is_fast(
    digits: Task, monkeypatch: pytest.MonkeyPatch
):
    photographs = DataConfig(source_dir=Path("photos"), target_dir=Path("cliparts"))

    def plan(fast: bool, **settings: Any) -> Any:
        monkeypatch.setattr("tcm.pipeline.plan.computes_bf16", lambda device: fast)
        return make_plan(replace(FitConfig(data=photographs, device="cpu", frozen=True), **settings), digits)

    assert (plan(fast=True).precision, plan(fast=False).precision) == ("bf16", "auto")
    assert plan(fast=True, precision="fp32").precision == "fp32"
    assert plan(fast=True).data.crop == 256
    assert plan(fast=True, data=replace(photographs, crop=200)).data.crop == 200
    transformer = BackboneConfig("vit_base_patch16_224")  # takes images of one size only
    assert plan(fast=True, backbone=transformer).data.crop is None
    assert plan(fast=True, frozen=False).precision == "auto"


def test_every_rival_can_be_tried_before_the_first_step(digits: Task, tmp_path: Path):
    config = FitConfig.for_images(small=True)
    config = replace(config, data=DataConfig(benchmark="digits"), compare=True, k=0, batch=4, device="cpu")
    found = preflight.preflight(config, make_plan(config, digits), digits, tmp_path / "fit")
    assert [*found.stages] == ["erm", *RIVALS, "tcm-control"]
    assert all(seconds > 0 for seconds in found.stages.values())
    assert not (tmp_path / "fit").exists()


def test_a_long_fit_names_a_remedy(digits: Task):
    plan = plan_of(digits, k=0)
    assert "frozen" not in how_long(TimeEstimate({"erm": 30.0, "tcm-control": 60.0}, 10.0), plan)
    said = how_long(TimeEstimate({"erm": 20_000.0, "tcm-control": 41_200.0}, 360.0), plan)
    assert "About 17.0 h" in said
    assert "`frozen=True` takes about 6 min" in said
    assert "smaller `steps`" in how_long(TimeEstimate({"erm": 61_200.0}, None), plan)


def test_the_digits_are_loaded_by_the_same_words(digits: Task):
    assert load_task(data_for_fit(DataConfig(benchmark="digits")), quiet=True).source.fingerprint == (
        digits.source.fingerprint
    )


def estimated(accuracy: float) -> Any:
    numbers = {"low": accuracy - 0.1, "high": accuracy + 0.1, "error": 0.05, "cases": 40, "level": 0.9, "held_out": 9}
    return Estimate(accuracy=accuracy, estimator="atc", estimators={}, **numbers)


def test_the_default_is_chosen_unless_there_is_evidence_against_it():
    default, other = estimated(0.7), estimated(0.74)
    assert chosen_by("tcm", {"erm": other, "tcm": default}, set()).name == "tcm"  # within the error of estimates
    assert chosen_by("tcm", {"erm": estimated(0.76), "tcm": default}, set()).name == "erm"
    assert chosen_by("tcm", {"erm": estimated(0.2), "tcm": default}, {"tcm"}).name == "erm"
    assert chosen_by("tcm", {"erm": estimated(0.9), "tcm": default}, {"erm"}).name == "tcm"
    assert chosen_by("tcm", {"erm": estimated(0.9), "tcm": default}, {"erm", "tcm"}).name == "tcm"
