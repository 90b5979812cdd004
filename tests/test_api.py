"""`import tcm`: both stages, one method, a finished run."""

import dataclasses
import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import tcm
from tcm.classifier.train_config import TrainConfig
from tcm.data import digits
from tcm.data.augment import as_input, as_stored
from tcm.data.task import DataConfig
from tcm.mechanisms.load import load_mechanisms
from tcm.mechanisms.pair import SIDES
from tcm.methods.dann import DANNConfig
from tcm.nn.backbone import BackboneConfig
from tcm.pipeline.config import FitConfig

DIGITS = {"benchmark": "digits"}
TINY: dict[str, Any] = {"steps": 2, "batch": 8, "evaluate_every": 2, "device": "cpu", "quiet": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders of images: with a subfolder for each of two classes, and without labels."""
    root = tmp_path_factory.mktemp("folders")
    for side in ("source", "target"):
        made = digits.domain(side)
        for index in np.flatnonzero(made.labels < 2)[:40]:
            place = root / side / (str(made.labels[index]) if side == "source" else "")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(made.images[index]).save(place / f"{index:04d}.png")
    return root / "source", root / "target"


@pytest.fixture(scope="module")
def fitted(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tcm.Classifier]:
    out = tmp_path_factory.mktemp("fit") / "run"
    stages = {"mechanisms": {"steps": 2, "batch": 4}, "k": 2, "steps": 2, "batch": 8}
    return out, tcm.fit(*folders, out=out, **stages, seed=3, device="cpu", quiet=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tcm.Classifier]:
    out = tmp_path_factory.mktemp("train") / "run"
    return out, tcm.train("erm", data=DIGITS, out=out, **TINY)


def test_importing_it_loads_no_torch():
    heavy = "torch", "numpy", "PIL", "tyro", "rich", "sklearn"
    code = f"import sys, tcm; dir(tcm); tcm.InputError; sys.exit(bool(sys.modules.keys() & {set(heavy)}))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_it_offers_what_it_lists():
    functions = {"fit", "train", "load", "predict", "evaluate"}
    assert {*functions, "METHODS", "Classifier", "InputError", "TCMClassifier", "TargetScorer"} == {*tcm.__all__}
    for name in tcm.__all__:
        assert getattr(tcm, name).__doc__
        assert name in dir(tcm)
    assert tcm.__version__
    assert tcm.METHODS["dann"] is DANNConfig
    with pytest.raises(AttributeError, match="has no attribute 'fitt'"):
        tcm.fitt  # noqa: B018  # pyright: ignore


@pytest.mark.parametrize(("function", "config"), [(tcm.fit, FitConfig), (tcm.train, TrainConfig)])
def test_defaults_are_those_of_the_config(function: Callable[..., Any], config: type):
    fields = {field.name: field.default for field in dataclasses.fields(config)}
    shared = {name: given.default for name, given in inspect.signature(function).parameters.items() if name in fields}
    assert shared.keys() >= {"data", "mechanisms", "seed", "device"}
    plain = {name: value for name, value in shared.items() if value is not None}
    assert plain == {name: fields[name] for name in plain}


def test_fit_gives_a_classifier_of_two_folders(fitted: tuple[Path, tcm.Classifier], folders: tuple[Path, Path]):
    out, classifier = fitted
    assert isinstance(classifier, tcm.Classifier)
    assert (classifier.method_name, classifier.classes) == ("tcm", ("0", "1"))
    assert (classifier.config.seed, classifier.config.steps) == (3, 2)
    assert {*classifier.predict(folders[1])} <= {"0", "1"}
    assert (out / "mechanisms" / "model.safetensors").exists()
    assert (out / "report" / "index.html").exists()
    assert len((out / "predictions.csv").read_text().splitlines()) == 1 + 40


def test_small_images_have_small_networks(fitted: tuple[Path, tcm.Classifier]):
    out, classifier = fitted
    assert classifier.config.backbone.name == "small"
    by_hand = json.loads((out / "mechanisms" / "config.json").read_text())["bank"]["generator"]
    assert by_hand["width"] == 8


def test_the_folder_of_a_fit_can_be_loaded_evaluated_and_asked(
    fitted: tuple[Path, tcm.Classifier], folders: tuple[Path, Path]
):
    out, classifier = fitted
    expected = classifier.predict_proba(folders[1])
    for run in (out, str(out), out / classifier.method_name):
        assert np.array_equal(tcm.load(run, device="cpu").predict_proba(folders[1]), expected)
    assert np.array_equal(tcm.predict(out, folders[1], device="cpu"), classifier.predict(folders[1]))
    scores = tcm.evaluate(out, device="cpu", quiet=True)
    assert scores["target"]["accuracy"] is None  # no labels
    assert scores == json.loads((out / classifier.method_name / "evaluation.json").read_text())


def test_fast_predicts_from_the_image_alone(fitted: tuple[Path, tcm.Classifier], folders: tuple[Path, Path]):
    out, classifier = fitted
    fast = classifier.predict_proba(folders[1], fast=True)
    assert np.array_equal(fast, classifier.predict_proba(folders[1]))  # the default has no slower way
    names = np.array(classifier.classes)[fast.argmax(axis=1)]
    assert np.array_equal(tcm.predict(out, folders[1], fast=True, device="cpu"), names)
    assert classifier.features(folders[1], fast=True).shape == (40, 256)


def test_the_images_of_a_fit_have_counterfactuals(
    fitted: tuple[Path, tcm.Classifier], folders: tuple[Path, Path], tmp_path: Path
):
    out, classifier = fitted
    bank = load_mechanisms(out / "mechanisms").bank
    found = classifier.counterfactuals(folders[1])
    assert (found.shape, found.dtype) == ((40, 2, 32, 32, 3), np.uint8)
    images = torch.from_numpy(np.stack([np.asarray(Image.open(file)) for file in sorted(folders[1].iterdir())]))
    with torch.no_grad():
        expected = {side: as_stored(bank.transport(as_input(images), side)) for side in SIDES}
    for side in SIDES:
        made = classifier.counterfactuals(folders[1], to=side).astype(int)
        assert np.abs(made - expected[side].transpose(0, 1).numpy()).max() <= 1
    assert classifier.predict_proba(found[0]).shape == (2, 2)
    # The runs of a fit share its mechanisms, wherever its folder is now.
    moved = shutil.copytree(out, tmp_path / "moved")
    for run in (moved, moved / "erm", moved / "model.safetensors"):
        assert np.array_equal(tcm.load(run, device="cpu").counterfactuals(folders[1]), found)
    with pytest.raises(tcm.InputError, match='`to` is "left"'):
        classifier.counterfactuals(folders[1], to="left")  # pyright: ignore[reportArgumentType]


def test_mechanisms_that_are_gone_are_named(
    fitted: tuple[Path, tcm.Classifier], folders: tuple[Path, Path], tmp_path: Path
):
    shutil.copy(fitted[0] / "tcm" / "model.safetensors", tmp_path)
    alone = tcm.load(tmp_path / "model.safetensors", device="cpu")
    assert np.array_equal(alone.predict(folders[1]), fitted[1].predict(folders[1]))
    with pytest.raises(tcm.InputError, match=r"the mechanisms of .* are not at mechanisms; restore them"):
        alone.counterfactuals(folders[1])


def test_the_mechanisms_of_a_fit_serve_another_method(
    fitted: tuple[Path, tcm.Classifier], folders: tuple[Path, Path], tmp_path: Path
):
    settings = TINY | {"data": {"size": 32, "crop": 32}, "method": {"confusion": 0.5}}
    mechanisms = fitted[0] / "mechanisms"
    classifier = tcm.train("tcm", *folders, out=tmp_path / "run", mechanisms=str(mechanisms), **settings)
    assert classifier.config.method.confusion == 0.5
    assert classifier.config.mechanisms == mechanisms


def test_train_gives_the_classifier_of_the_run(trained: tuple[Path, tcm.Classifier], digits_pixels: np.ndarray):
    out, classifier = trained
    assert repr(classifier) == repr(tcm.load(out, device="cpu"))
    assert tcm.evaluate(out, device="cpu")["target"]["labelled"] == 899
    assert np.array_equal(tcm.predict(out, digits_pixels, device="cpu"), classifier.predict(digits_pixels))


@pytest.fixture(scope="module")
def digits_pixels() -> np.ndarray:
    return digits.domain("target").images[:5]


def test_a_finished_run_is_only_loaded(trained: tuple[Path, tcm.Classifier], capsys: pytest.CaptureFixture[str]):
    out, classifier = trained
    before = (out / "model.safetensors").stat().st_mtime_ns
    again = tcm.train("erm", data=DataConfig(benchmark="digits"), out=str(out), **TINY)
    assert again.config == classifier.config
    assert (out / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(tcm.InputError, match="seed: 0 -> 1"):
        tcm.train("erm", data=DIGITS, out=out, **TINY, seed=1)


def test_settings_may_be_configs_or_mappings(tmp_path: Path):
    settings = TINY | {"data": DataConfig(benchmark="digits", shift=0), "backbone": BackboneConfig("small")}
    one = tcm.train("dann", method=DANNConfig(trade_off=0.5), out=tmp_path / "run", **settings)
    settings = TINY | {"data": {**DIGITS, "shift": 0}, "backbone": {"name": "small"}}
    two = tcm.train("dann", method={"trade_off": 0.5}, out=tmp_path / "run", **settings)
    assert one.config == two.config
    assert two.config.method == DANNConfig(trade_off=0.5)


@pytest.mark.parametrize(
    ("settings", "field", "said"),
    [
        ({"stepps": 3}, "stepps", "did you mean `steps`?"),
        ({"crop": 28}, "crop", "did you mean `data.crop`?"),
        ({"data": {"benchmrk": "digits"}}, "data.benchmrk", "did you mean `data.benchmark`?"),
        ({"data": "digits"}, "data", "DataConfig"),
        ({"method": {"tradeoff": 1.0}}, "method.tradeoff", "did you mean `method.trade_off`?"),
        ({"method": {"recipe": {"lr": "fast"}}}, "method.recipe.lr", "give float"),
        ({"method": BackboneConfig()}, "method", "DANNConfig"),
        ({"backbone": {"nam": "small"}}, "backbone.nam", "did you mean `backbone.name`?"),
        ({"steps": "many"}, "steps", "give int"),
        ({"device": "gpu"}, "device", "'cuda'"),
        ({"source": "photos"}, "target", "is missing"),
        ({"target": "cliparts"}, "source", "is missing"),
        ({"source": "a", "target": "b", "data": {"source_dir": "c"}}, "source", "`data.source_dir`"),
        ({"source": "", "target": "b", "data": {}}, "source", "is empty"),
        ({"out": ""}, "out", "is empty"),
    ],
)
def test_a_setting_that_is_wrong_is_named(settings: dict[str, Any], field: str, said: str, tmp_path: Path):
    with pytest.raises(tcm.InputError) as caught:
        tcm.train("dann", **{"data": DIGITS, "out": tmp_path / "run"} | settings)
    assert caught.value.field == field
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "field", "said"),
    [
        ({"stpes": 5}, "stpes", "did you mean `steps`?"),
        ({"mechanisms": {"stpes": 5}}, "mechanisms.stpes", "`mechanisms.steps`"),
        ({"mechanisms": {"batch": 0}}, "mechanisms.batch", "give 1 or more"),
        ({"backbone": {"nam": "small"}}, "backbone.nam", "`backbone.name`"),
        ({"k": "many"}, "k", "is 'many'"),
    ],
)
def test_a_setting_of_a_fit_is_named_by_its_stage(settings: dict[str, Any], field: str, said: str, tmp_path: Path):
    with pytest.raises(tcm.InputError) as caught:
        tcm.fit(data=DIGITS, out=tmp_path / "run", **settings)
    assert caught.value.field == field
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_an_unknown_method_is_refused(tmp_path: Path):
    with pytest.raises(tcm.InputError, match=r'no method "dnan"; .*dann'):
        tcm.train("dnan", data=DIGITS, out=tmp_path / "run")


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    for ask in (tcm.load, tcm.evaluate):
        with pytest.raises(tcm.InputError, match=r"no run folder|not a run"):
            ask(tmp_path)
