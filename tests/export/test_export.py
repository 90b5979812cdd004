"""Exported files give what the run predicts, without the parts of training."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from support.exportable import CLASSES, draw_task, write_run
from torch import Tensor

import tcm
from tcm.classifier.trained import load_trained
from tcm.cli.app import main
from tcm.export.check import Checked, RealImages, compare
from tcm.export.export import Exported, export_classifier
from tcm.export.graph import ExportedNetwork, Preprocessing, Probabilities, traced
from tcm.methods import METHODS
from tcm.methods.method import Method

SIZES = {"small": (36, 32), "test_resnet": (72, 64), "test_convnext": (72, 64), "test_vit": (176, 160)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export")


def make_run(place: Path, backbone: str, method: str = "dann") -> Path:
    folder = place / f"{method}-{backbone}"
    size, crop = SIZES[backbone]
    return folder if folder.exists() else write_run(folder, method, backbone, draw_task(place / "data", size, crop))


def pixels(size: int, count: int) -> np.ndarray:
    """Noise around a colour of each image's own."""
    rng = np.random.default_rng(0)
    return (rng.uniform(0, 200, (count, 1, 1, 3)) + rng.uniform(0, 55, (count, size, size, 3))).astype(np.uint8)


def cropped(images: np.ndarray, crop: int) -> np.ndarray:
    """Centres as floats [n, 3, crop, crop], written out in numpy."""
    corner = (images.shape[1] - crop) // 2
    inner = images[:, corner : corner + crop, corner : corner + crop].astype(np.float64) / 255
    return inner.transpose(0, 3, 1, 2).astype(np.float32)


def exported(run: Path, out: Path, format: Any, **options: Any) -> Path:
    """The file, which passed its own check."""
    made = export_classifier(run, out, format, **options, quiet=True)
    assert made.checked.passed
    assert (made.place, made.checked.images, made.checked.origin) == (out, 9, "Clipart")
    assert made.bytes == out.stat().st_size
    return out


@pytest.mark.parametrize("backbone", SIZES)
def test_onnx_gives_the_probabilities_of_the_run(place: Path, tmp_path: Path, backbone: str):
    run, (size, crop) = make_run(place, backbone), SIZES[backbone]
    whole = backbone == "test_resnet"  # one of them with the preprocessing inside
    file = exported(run, tmp_path / "model.onnx", "onnx", preprocessing=whole)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for count in (1, 3, 5):
        images = pixels(size, count)
        (found,) = session.run(["probabilities"], {"images": images if whole else cropped(images, crop)})
        expected = tcm.load(run, device="cpu").predict_proba(images)
        assert expected.std(axis=0).max() > 0.01 or count == 1  # so that a wrong file would be seen
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-4)


@pytest.mark.parametrize("backbone", ["small", "test_vit"])
def test_pt2_gives_the_probabilities_of_the_run(place: Path, tmp_path: Path, backbone: str):
    run, (size, crop) = make_run(place, backbone), SIZES[backbone]
    whole = backbone == "small"
    file = exported(run, tmp_path / "model.pt2", "pt2", preprocessing=whole)
    model = torch.export.load(file).module()
    for count in (1, 4):
        images = pixels(size, count)
        found = model(torch.from_numpy(images if whole else cropped(images, crop)))
        expected = tcm.load(run, device="cpu").predict_proba(images)
        np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-5)


def predicts_in_its_own_way(name: str) -> bool:
    own = METHODS[name].method
    return own.answer is not Method.answer or own.features is not Method.features


@pytest.mark.parametrize("name", ["dann", *filter(predicts_in_its_own_way, METHODS)])
def test_the_graph_of_a_method_predicts_as_it_does(place: Path, name: str):
    method = load_trained(make_run(place, "small", name)).method
    program = traced(ExportedNetwork(Probabilities(method, fast=False), Preprocessing(36, 32), included=False))
    images = torch.from_numpy(cropped(pixels(36, 5), 32))
    with torch.no_grad():
        expected = method.predict(images).softmax(dim=1)
        torch.testing.assert_close(program.module()(images), expected, atol=1e-5, rtol=0)
    assert expected.std(dim=0).max() > 1e-3
    kept = {key.removeprefix("network.method.") for key in program.state_dict}
    assert not any("discriminator" in key or "num_batches_tracked" in key for key in kept)


def test_training_parts_are_left_out(place: Path, tmp_path: Path):
    run = make_run(place, "small")
    assert any("discriminator" in key for key in load_trained(run).method.state_dict())
    file = exported(run, tmp_path / "model.onnx", "onnx")
    names = {tensor.name for tensor in onnx.load(file).graph.initializer}
    assert any("classifier" in name for name in names)
    assert not any("discriminator" in name for name in names)


def test_fast_needs_no_mechanisms(place: Path, tmp_path: Path):
    run = make_run(place, "small", "tcm-paper")
    with_mechanisms = exported(run, tmp_path / "whole.pt2", "pt2")
    fast = exported(run, tmp_path / "fast.pt2", "pt2", fast=True)
    names = [set(torch.export.load(file).state_dict) for file in (with_mechanisms, fast)]
    assert [any(".inverse." in name for name in found) for found in names] == [True, False]
    images = torch.from_numpy(cropped(pixels(36, 3), 32))
    expected = tcm.load(run, device="cpu").predict_proba(pixels(36, 3), fast=True)
    found = torch.export.load(fast).module()(images).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_file_describes_itself_and_holds_no_paths(place: Path, tmp_path: Path):
    run = make_run(place, "small")
    files = [exported(run, tmp_path / f"model.{format}", format) for format in ("onnx", "pt2")]
    about = onnxruntime.InferenceSession(files[0]).get_modelmeta().custom_metadata_map
    extra = {"about.json": ""}
    torch.export.load(files[1], extra_files=extra)
    for found in (
        {**about, **{k: json.loads(about[k]) for k in ("classes", "size", "mean")}},
        json.loads(extra["about.json"]),
    ):
        assert (found["classes"], found["size"], found["mean"]) == ([*CLASSES], 36, [0.5, 0.5, 0.5])
        assert (found["method"], found["input"]) == ("dann", "float32 [n, 3, 32, 32] in [0, 1]")
    (dimension,) = {value.type.tensor_type.shape.dim[0].dim_param for value in onnx.load(files[0]).graph.input}
    assert dimension == "batch"
    for file in files:
        assert str(Path(tcm.__file__).parent).encode() not in file.read_bytes()


def test_a_wrong_file_is_reported_and_stays(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def no_normalisation(method: Any, fast: bool) -> Probabilities:
        method.backbone.mean.zero_()
        return Probabilities(load_trained(run).method, fast)

    run, out = make_run(place, "small"), tmp_path / "wrong.pt2"
    monkeypatch.setattr("tcm.export.export.Probabilities", no_normalisation)
    assert main(["export", str(run), "--format", "pt2", "--out", str(out), "-q"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {out} does not compute what the run computes: on 9 images of Clipart")
    assert "the limit is 0.001" in said
    assert out.exists()


def test_the_largest_difference_counts_over_all_batches():
    images = RealImages(torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1), "here")

    def found(batch: Tensor) -> Tensor:
        return batch.float() + 0.5 * (batch == 37)

    assert compare(found, lambda batch: batch.float(), images, quiet=True) == Checked(0.5, 40, "here")
    assert not Checked(0.5, 40, "here").passed
    assert Checked(0.001, 40, "here").passed
    for place in (0, 20, 39):  # a single NaN is enough
        broken = compare(lambda b, p=place: torch.where(b == p, torch.nan, b.float()), found, images, quiet=True)
        assert math.isnan(broken.largest)
        assert not broken.passed


def test_the_images_of_the_check_may_come_from_a_folder(place: Path, tmp_path: Path):
    run, folder = make_run(place, "small"), place / "data" / "Art"
    made: Exported = export_classifier(run, tmp_path / "model.pt2", "pt2", images=folder, quiet=True)
    assert (made.checked.images, made.checked.origin) == (6, "Art")
