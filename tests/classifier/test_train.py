"""A whole run with counterfactuals: exact resume, and a model that needs no file but its own."""

import dataclasses
import json
import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.averaging import Averaging, AveragingConfig, register
from torch import Tensor

from tcm.classifier.evaluate import predict_task, probabilities
from tcm.classifier.selection import SCORES
from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.classifier.trained import load_trained
from tcm.cli.app import main
from tcm.config import from_json
from tcm.data.batch import Batch
from tcm.data.holdout import held_out_images
from tcm.data.stream import Stream, Strong
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError
from tcm.mechanisms.judgement import Judgement
from tcm.mechanisms.load import load_mechanisms
from tcm.methods.erm import ERMConfig
from tcm.methods.method import Method
from tcm.methods.tcm.paper import PaperConfig, PaperTCM
from tcm.methods.tcm.tcm import TCMConfig
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import make_fabric
from tcm.training.run_folder import Run

K = 2


@pytest.fixture(scope="module")
def mechanisms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of stage 1 on the digits, and its images."""
    folder = tmp_path_factory.mktemp("stage-1") / "run"
    options = ["--data.benchmark", "digits", "--steps", "20", "--batch", "4", "--k", str(K), "--device", "cpu", "-q"]
    assert main(["mechanisms", *options, "--out", str(folder)]) == 0
    assert main(["transport", str(folder), "--device", "cpu", "-q"]) == 0
    return folder


@pytest.fixture(autouse=True)
def method(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)


def config_of(mechanisms: Path) -> TrainConfig[AveragingConfig]:
    return TrainConfig(
        method=AveragingConfig(),
        data=DataConfig(benchmark="digits"),
        mechanisms=mechanisms,
        steps=6,
        batch=8,
        log_every=2,
        save_every=3,
        evaluate_every=100,
        device="cpu",
    )


@pytest.fixture(scope="module")
def finished(mechanisms: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage-2") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        register(monkeypatch)
        assert train_classifier("averaging", config_of(mechanisms), folder, quiet=True)
    return folder


def break_off(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The power goes at this step."""
    whole = Stream.batch

    def batch(stream: Stream, step: int) -> Batch:
        if step == at:
            raise ConnectionError("the power is gone")
        return whole(stream, step)

    monkeypatch.setattr(Stream, "batch", batch)


def interrupted(config: TrainConfig[AveragingConfig], folder: Path, at: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        break_off(monkeypatch, at)
        with pytest.raises(ConnectionError):
            train_classifier("averaging", config, folder, quiet=True)


@pytest.mark.parametrize("at", [2, 3, 5])
def test_resume_is_exact(mechanisms: Path, finished: Path, tmp_path: Path, at: int):
    interrupted(config_of(mechanisms), tmp_path / "run", at)
    assert train_classifier("averaging", config_of(mechanisms), tmp_path / "run", quiet=True)
    assert Run(tmp_path / "run").model_file.read_bytes() == Run(finished).model_file.read_bytes()


def test_with_images_held_out_resume_is_exact_and_they_are_scored(
    mechanisms: Path, finished: Path, digits: Task, tmp_path: Path
):
    config = dataclasses.replace(config_of(mechanisms), held_out=0.25, evaluate_every=3)
    interrupted(config, tmp_path / "resumed", at=5)
    for name in ("resumed", "whole"):
        assert train_classifier("averaging", config, tmp_path / name, quiet=True)
    resumed, whole = (Run(tmp_path / name) for name in ("resumed", "whole"))
    assert resumed.model_file.read_bytes() == whole.model_file.read_bytes()
    rows = [row for row in whole.metrics() if "target/accuracy" in row]
    assert [row["step"] for row in rows] == [3, 6]
    assert rows == [row for row in resumed.metrics() if "target/accuracy" in row]
    held_out = held_out_images(digits.source, 0.25, config.seed)
    method = load_trained(whole.folder).method
    found = probabilities(make_fabric("cpu", "fp32"), method.predict, digits.source.images[held_out], crop=32)
    right = (found.argmax(dim=1) == digits.source.labels[held_out]).double().mean()
    assert rows[-1]["select/source"] == pytest.approx(float(right))
    plain = Run(finished).load_model()[0]
    assert not torch.equal(plain["classifier.weight"], whole.load_model()[0]["classifier.weight"])


def test_an_evaluation_has_every_selection_score_and_the_last_iterate_is_reported(finished: Path):
    (row,) = [row for row in Run(finished).metrics() if "target/accuracy" in row]
    assert all(math.isfinite(row[f"select/{name}"]) for name in SCORES)
    assert row["select/source"] == pytest.approx(row["source/accuracy"])  # none are held out
    assert json.loads((finished / "evaluation.json").read_text())["selection"] == "last"


def test_the_method_learns_and_the_inverse_mechanisms_stay(mechanisms: Path, finished: Path):
    method, bank = load_trained(finished).method, load_mechanisms(mechanisms).bank
    assert method.inverse is not None
    for network, pair in zip(method.inverse, bank.pairs(), strict=True):
        for now, then in zip(network.parameters(), pair.to_source.parameters(), strict=True):
            assert torch.equal(now, then)
            assert not now.requires_grad
    learning = {id(p) for group in method.build_optimizers()["sgd"].param_groups for p in group["params"]}
    assert learning == {id(p) for name, p in method.named_parameters() if not name.startswith("inverse.")}
    assert not any(network.training for network in method.train().inverse or ())
    losses = [row for row in Run(finished).metrics() if "loss/entropy" in row]
    assert [row["step"] for row in losses] == [2, 3, 4, 6]


def test_inverse_counterfactuals_are_those_of_the_bank(mechanisms: Path, finished: Path, digits: Task):
    method, bank = load_trained(finished).method, load_mechanisms(mechanisms).bank
    images = torch.rand(5, 3, 32, 32, requires_grad=True)
    found = method.inverse_counterfactuals(images)
    assert found.shape == (K, 5, 3, 32, 32)
    assert not found.requires_grad
    assert torch.equal(found, bank.transport(images, to="source"))


def test_a_saved_model_needs_no_file_but_its_own(mechanisms: Path, digits: Task, tmp_path: Path):
    own, run, alone = tmp_path / "mechanisms", tmp_path / "run", tmp_path / "alone"
    shutil.copytree(mechanisms, own)
    assert train_classifier("averaging", config_of(own), run, quiet=True)
    expected = np.load(run / "evaluation.npz")["probabilities"]
    shutil.rmtree(own)
    assert not train_classifier("averaging", config_of(own), run, quiet=True)  # finished, so nothing of it is needed
    alone.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(run / name, alone)
    trained = load_trained(alone)
    assert isinstance(trained.method, Averaging)
    found = probabilities(make_fabric("cpu", "fp32"), trained.method.predict, digits.target.images, crop=32)
    assert np.array_equal(found.numpy(), expected)
    main(["evaluate", str(alone), "-q"])
    assert np.array_equal(np.load(alone / "evaluation.npz")["probabilities"], expected)


def test_a_run_goes_on_only_with_its_own_mechanisms(mechanisms: Path, tmp_path: Path):
    own, run = tmp_path / "mechanisms", tmp_path / "run"
    shutil.copytree(mechanisms, own)
    interrupted(config_of(own), run, at=4)
    shutil.rmtree(own)
    options = ["--data.benchmark", "digits", "--steps", "20", "--batch", "4", "--k", str(K), "--device", "cpu", "-q"]
    assert main(["mechanisms", *options, "--seed", "1", "--out", str(own)]) == 0
    assert main(["transport", str(own), "--device", "cpu", "-q"]) == 0
    before = (run / "state.pt").read_bytes()
    with pytest.raises(InputError, match=r"`mechanisms` holds others than .*/run was started with; restore"):
        train_classifier("averaging", config_of(own), run, quiet=True)
    assert (run / "state.pt").read_bytes() == before
    other = dataclasses.replace(config_of(own), mechanisms=mechanisms)
    with pytest.raises(InputError, match=r"holds a run with another configuration \(mechanisms"):
        train_classifier("averaging", other, run, quiet=True)


def test_the_command_line_explains_mechanisms(capsys: pytest.CaptureFixture[str]):
    for name in ("erm", "averaging"):
        assert main(["train", name, "--help"]) == 0
        assert "--mechanisms" in capsys.readouterr().out


def test_a_method_concludes_with_all_target_images_before_its_last_evaluation(
    digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen: list[int] = []

    def conclude(self: Method, target: Iterable[Tensor], source: Iterable[tuple[Tensor, Tensor]]) -> None:
        assert not self.training
        assert not list(source)  # there are no counterfactuals
        seen.append(sum(map(len, target)))
        self.get_parameter("classifier.bias").copy_(torch.eye(10)[7] * 1e3)  # from now on everything is a seven

    monkeypatch.setattr(Method, "conclude", conclude)
    config = TrainConfig(
        data=DataConfig(benchmark="digits"), method=ERMConfig(), steps=4, evaluate_every=2, batch=8, device="cpu"
    )
    train_classifier("erm", config, tmp_path / "run", quiet=True)
    assert seen == [len(digits.target)]
    rows = [row for row in Run(tmp_path / "run").metrics() if "target/accuracy" in row]
    sevens = float((digits.target.labels == 7).float().mean())
    assert rows[1]["target/accuracy"] == pytest.approx(sevens) != rows[0]["target/accuracy"]
    told = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert told["target"]["accuracy"] == rows[1]["target/accuracy"]
    assert load_trained(tmp_path / "run").method.state_dict()["classifier.bias"][7] == 1e3


def test_with_counterfactuals_it_concludes_with_those_of_all_source_images(
    mechanisms: Path, digits: Task, tmp_path: Path
):
    config = dataclasses.replace(config_of(mechanisms), method=PaperConfig.for_images(small=True))
    train_classifier("tcm-paper", config, tmp_path / "run", quiet=True)
    method = load_trained(tmp_path / "run").method
    assert isinstance(method, PaperTCM)
    assert method.head.source.count == K * len(digits.source)
    assert method.head.target.count == K * len(digits.target)
    told = json.loads((tmp_path / "run" / "evaluation.json").read_text())["singular_values"]["W3"]
    assert told == pytest.approx(torch.linalg.svdvals(method.head.heads.constants().w3.double()).tolist())


def test_the_last_evaluation_is_not_made_twice(digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []
    monkeypatch.setattr("tcm.classifier.train.predict_task", lambda *given: (seen.append(1), predict_task(*given))[1])
    config = TrainConfig(
        data=DataConfig(benchmark="digits"), method=ERMConfig(), steps=4, evaluate_every=2, batch=8, device="cpu"
    )
    train_classifier("erm", config, tmp_path / "run", quiet=True)
    assert len(seen) == 2
    rows = [row for row in Run(tmp_path / "run").metrics() if "target/accuracy" in row]
    told = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert rows[-1]["target/accuracy"] == told["target"]["accuracy"]
    assert rows[-1]["source/accuracy"] == told["source"]["accuracy"]


@pytest.mark.parametrize("name", ["dann", "unheard-of"])
def test_a_name_that_is_not_the_methods_is_refused_before_training(name: str, tmp_path: Path):
    config = TrainConfig(method=ERMConfig(), data=DataConfig(benchmark="digits"), steps=2)
    with pytest.raises(InputError, match=f'no method "{name}" with the config ERMConfig'):
        train_classifier(name, config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_mechanisms_that_do_not_bring_images_nearer_are_left_out(
    mechanisms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    weights, run = tmp_path / "small.safetensors", tmp_path / "run"
    torch.manual_seed(0)
    save_file(BackboneConfig("small").build().network.state_dict(), weights)
    pretrained = BackboneConfig("small", weights)
    config: TrainConfig[TCMConfig] = dataclasses.replace(
        TrainConfig(method=TCMConfig.for_images(small=True)),
        **{key: getattr(config_of(mechanisms), key) for key in ("data", "mechanisms", "steps", "batch", "device")},
        backbone=pretrained,
    )
    seen: list[Strong | None] = []
    whole = Stream.__init__

    def noted(stream: Stream, *args: Any, **options: Any) -> None:
        seen.append(options["strong"])
        whole(stream, *args, **options)

    monkeypatch.setattr(Stream, "__init__", noted)
    assert train_classifier("tcm", config, run, quiet=True)
    judgement = from_json(Judgement, json.loads((run / "mechanisms.json").read_text()))
    assert len(judgement.verdicts) == 2 * K
    assert all(verdict.distance is not None for verdict in judgement.verdicts)
    assert seen[-1] is not None
    assert seen[-1].mechanisms == judgement.used
    # Without pretrained weights a network that learns the source images is asked.
    random, out = dataclasses.replace(config, backbone=BackboneConfig("small")), tmp_path / "random"
    assert train_classifier("tcm", random, out, quiet=True)
    judgement = from_json(Judgement, json.loads((out / "mechanisms.json").read_text()))
    assert judgement.recognised > 0.9
    assert all(verdict.distance is None for verdict in judgement.verdicts)
    assert seen[-1] is not None
    assert seen[-1].mechanisms == judgement.used
    # If it is not wanted, nothing is measured. The views of one domain alone may start from counterfactuals.
    every = list(range(K))
    for domains, expected in (("both", (every, every)), ("source", (every, [])), ("target", ([], every))):
        method = dataclasses.replace(config.method, only_useful=False, counterfactuals_of=domains)
        out = tmp_path / domains
        assert train_classifier("tcm", dataclasses.replace(config, method=method), out, quiet=True)
        assert not (out / "mechanisms.json").exists()
        assert seen[-1] is not None
        assert seen[-1].mechanisms == expected
