"""A finished run as a classifier, for images in every form."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tcm.classifier.evaluate import BATCH, probabilities
from tcm.classifier.load import Classifier, load_classifier
from tcm.classifier.predict import predict_folder, predictions_csv
from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.classifier.trained import load_trained
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError
from tcm.methods.erm import ERMConfig
from tcm.training.device import make_fabric
from tcm.training.run_folder import chosen_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose images are stored at 32 x 32 and cut to 28 x 28."""
    folder = tmp_path_factory.mktemp("run") / "erm"
    data = DataConfig(benchmark="digits", crop=28)
    config = TrainConfig(method=ERMConfig(), data=data, steps=3, batch=8, evaluate_every=3, device="cpu")
    train_classifier("erm", config, folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def classifier(run: Path) -> Classifier:
    return load_classifier(run, "cpu")


@pytest.fixture(scope="module")
def pixels(digits: Task) -> np.ndarray:
    return digits.target.images[:6].numpy()


@pytest.fixture(scope="module")
def folder(pixels: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images as files, some of them below a subfolder."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "b").mkdir()
    for name, image in zip(("a.png", "b/1.png", "b/2.png", "c.png", "d.png", "e.png"), pixels, strict=True):
        Image.fromarray(image).save(folder / name)
    return folder


def test_it_knows_what_it_is(classifier: Classifier):
    assert classifier.classes == tuple("0123456789")
    assert classifier.method_name == "erm"
    assert (classifier.size, classifier.crop) == (32, 28)
    assert repr(classifier) == "Classifier('erm', 10 classes, size=32, crop=28, device='cpu')"


def test_probabilities_are_those_of_the_model_on_centre_crops(run: Path, classifier: Classifier, pixels: np.ndarray):
    fabric, method = make_fabric("cpu", "fp32"), load_trained(run).method
    expected = probabilities(fabric, method.predict, torch.from_numpy(pixels), crop=28).numpy()
    found = classifier.predict_proba(pixels)
    assert np.array_equal(found, expected)
    assert found.dtype == np.float32
    assert found.shape == (6, 10)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert classifier.predict(pixels).tolist() == [classifier.classes[guess] for guess in expected.argmax(axis=1)]


FORMS: dict[str, Callable[[Path, np.ndarray], Any]] = {
    "folder": lambda folder, pixels: folder,
    "folder as text": lambda folder, pixels: str(folder),
    "paths": lambda folder, pixels: sorted(folder.rglob("*.png")),
    "paths that come one by one": lambda folder, pixels: (path for path in sorted(folder.rglob("*.png"))),
    "array of paths": lambda folder, pixels: np.array([str(path) for path in sorted(folder.rglob("*.png"))]),
    "PIL images": lambda folder, pixels: [Image.fromarray(image) for image in pixels],
    "open files": lambda folder, pixels: [Image.open(path) for path in sorted(folder.rglob("*.png"))],
    "list of arrays": lambda folder, pixels: list(pixels),
    "floats": lambda folder, pixels: pixels / 255,
    "half floats": lambda folder, pixels: (pixels / 255).astype(np.float16),
    "tensor of bytes": lambda folder, pixels: torch.from_numpy(pixels).movedim(-1, 1),
    "tensor of floats": lambda folder, pixels: torch.from_numpy(pixels).movedim(-1, 1) / 255,
    "tensor with gradients": lambda folder, pixels: (torch.from_numpy(pixels).movedim(-1, 1) / 255).requires_grad_(),
    "list of tensors": lambda folder, pixels: list(torch.from_numpy(pixels).movedim(-1, 1)),
    "all kinds": lambda folder, pixels: [
        folder / "a.png",
        str(folder / "b"),
        Image.fromarray(pixels[3]),
        pixels[4],
        torch.from_numpy(pixels[5]).movedim(-1, 0),
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_image_gives_the_same(form: str, classifier: Classifier, folder: Path, pixels: np.ndarray):
    expected = classifier.predict_proba(pixels)
    assert np.array_equal(classifier.predict_proba(FORMS[form](folder, pixels)), expected)


def test_one_image_is_a_batch_of_one(classifier: Classifier, folder: Path, pixels: np.ndarray):
    for image in (folder / "a.png", Image.fromarray(pixels[0]), pixels[0], torch.from_numpy(pixels[0]).movedim(-1, 0)):
        assert classifier.predict(image).tolist() == classifier.predict(pixels[:1]).tolist()
        assert classifier.features(image).shape == (1, 256)


def test_an_image_of_another_size_is_resized_as_a_file_is(classifier: Classifier, tmp_path: Path):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (45, 70, 3), dtype=np.uint8))
    picture.save(tmp_path / "x.png")
    expected = classifier.predict_proba(tmp_path / "x.png")
    array = np.asarray(picture)
    for form in (picture, array, torch.from_numpy(array.copy()).movedim(-1, 0)):
        assert np.array_equal(classifier.predict_proba(form), expected)


def test_a_pil_image_is_turned_upright_and_laid_on_white_as_a_file_is(classifier: Classifier, tmp_path: Path):
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 4), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "clear.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    Image.fromarray(noise[..., :3]).save(tmp_path / "lying.png", exif=exif)
    for name in ("clear.png", "lying.png"):
        with Image.open(tmp_path / name) as picture:
            assert np.array_equal(classifier.predict_proba(picture), classifier.predict_proba(tmp_path / name))
    lying = noise[..., :3]
    assert not np.array_equal(classifier.predict_proba(tmp_path / "lying.png"), classifier.predict_proba(lying))


def test_features_are_what_the_last_layer_reads(classifier: Classifier, pixels: np.ndarray):
    features = classifier.features(pixels)
    assert features.shape == (6, 256)
    assert features.dtype == np.float32
    with torch.no_grad():
        logits = classifier.method.classifier(torch.from_numpy(features))
    np.testing.assert_allclose(logits.softmax(dim=1).numpy(), classifier.predict_proba(pixels), atol=1e-6)


def test_the_network_is_a_plain_module(classifier: Classifier, pixels: np.ndarray, folder: Path):
    inputs = classifier.preprocess(pixels)
    assert inputs.shape == (6, 3, 28, 28)
    assert torch.equal(inputs, classifier.preprocess(folder))
    expected = torch.from_numpy(pixels[:, 2:30, 2:30]).movedim(-1, 1) / 255
    torch.testing.assert_close(inputs, expected)
    with torch.no_grad():
        logits = classifier.method(inputs)
    np.testing.assert_allclose(logits.softmax(dim=1).numpy(), classifier.predict_proba(pixels), atol=1e-6)


def test_nothing_has_gradients(classifier: Classifier, pixels: np.ndarray):
    classifier.explain(pixels[:2])
    assert not classifier.preprocess(torch.rand(1, 3, 32, 32, requires_grad=True)).requires_grad
    assert all(parameter.grad is None for parameter in classifier.method.parameters())


def test_maps_explain_the_predicted_class(classifier: Classifier, pixels: np.ndarray, folder: Path):
    maps = classifier.explain(pixels)
    assert (maps.shape, maps.dtype) == ((6, 28, 28), np.float32)
    assert maps.min() >= 0
    strongest = maps.max(axis=(1, 2))
    assert np.all((strongest == 0) | np.isclose(strongest, 1))
    np.testing.assert_allclose(classifier.explain(folder), maps, atol=1e-6)
    predicted = classifier.predict(pixels)
    np.testing.assert_allclose(classifier.explain(pixels, list(predicted)), maps, atol=1e-6)
    each = [classifier.explain(pixels, name) for name in classifier.classes]
    assert not all(np.allclose(each[0], other) for other in each[1:])  # a class has its own map


def test_a_map_is_about_what_the_network_looks_at(classifier: Classifier, pixels: np.ndarray):
    def share_inside(image: np.ndarray) -> float:
        heat = classifier.explain(image)[0]
        return float(heat[:, :14].sum() / max(heat.sum(), 1e-12))

    image = np.zeros_like(pixels[0])
    image[:, :16] = pixels[0][:, 8:24]  # all there is to see is in the left half
    assert share_inside(image) > share_inside(image[:, ::-1].copy())


@pytest.mark.parametrize(
    ("classes", "said"), [("ten", '"ten", which is not a class; there are 0, 1'), (["1", "2"], "2 names for 6 images")]
)
def test_only_classes_of_the_run_are_explained(
    classifier: Classifier, pixels: np.ndarray, classes: str | list[str], said: str
):
    with pytest.raises(InputError, match=said):
        classifier.explain(pixels, classes)


def test_a_run_without_mechanisms_has_no_counterfactuals(classifier: Classifier, pixels: np.ndarray):
    with pytest.raises(InputError, match=r"erm has no mechanisms.*; load a run that was trained with mechanisms"):
        classifier.counterfactuals(pixels)


def test_the_file_of_a_model_is_enough(run: Path, classifier: Classifier, pixels: np.ndarray, tmp_path: Path):
    expected = classifier.predict_proba(pixels)
    alone = tmp_path / "digits v1.safetensors"
    shutil.copy(run / "model.safetensors", alone)
    for file in (run / "model.safetensors", alone):
        assert np.array_equal(load_classifier(file, "cpu").predict_proba(pixels), expected)


def test_many_images_go_through_in_batches_and_in_order(classifier: Classifier, digits: Task):
    images = digits.target.images[: BATCH + 10].numpy()
    found = classifier.predict_proba(images)
    assert len(found) == BATCH + 10
    np.testing.assert_allclose(found[-10:], classifier.predict_proba(images[-10:]), atol=1e-6)


def test_a_folder_is_predicted_as_by_the_command(run: Path, classifier: Classifier, folder: Path):
    found, bad = predict_folder(run, folder, "cpu", quiet=True)
    assert bad == []
    assert found.paths == ["a.png", "b/1.png", "b/2.png", "c.png", "d.png", "e.png"]
    assert np.array_equal(found.probabilities, classifier.predict_proba(folder))
    rows = list(csv.reader(predictions_csv(found).splitlines()))
    assert [row[1] for row in rows[1:]] == classifier.predict(folder).tolist()


def test_a_single_file_is_predicted(run: Path, classifier: Classifier, folder: Path):
    found, bad = predict_folder(run, folder / "a.png", "cpu", quiet=True)
    assert (found.paths, bad) == (["a.png"], [])
    assert np.array_equal(found.probabilities, classifier.predict_proba(folder / "a.png"))
    columns = list(csv.reader(predictions_csv(found, probabilities=True).splitlines()))
    assert columns[0] == ["path", "class", "confidence", *classifier.classes]


MISTAKES: dict[str, tuple[Any, str]] = {
    "nothing": (None, "`images` is of type NoneType; give a path"),
    "no images": ([], "`images` is empty; give a path"),
    "no rows": (np.zeros((0, 32, 32, 3), np.uint8), "`images` is empty"),
    "a number among images": ([np.zeros((8, 8, 3), np.uint8), 7], r"`images\[1\]` is of type int"),
    "grey": (np.zeros((32, 32), np.uint8), r"shape \[32, 32\]; .*\[height, width, 3\]"),
    "with alpha": (np.zeros((2, 32, 32, 4), np.uint8), r"shape \[2, 32, 32, 4\]; .*\[n, height, width, 3\]"),
    "channels first": (np.zeros((3, 32, 32), np.uint8), r"shape \[3, 32, 32\]; .*\[height, width, 3\]"),
    "tensor with channels last": (torch.zeros(2, 32, 32, 3), r"shape \[2, 32, 32, 3\]; .*\[n, 3, height, width\]"),
    "flat tensor": (torch.zeros(3072), r"shape \[3072\]; .*\[3, height, width\]"),
    "no pixels": (np.zeros((0, 32, 3), np.uint8), r"shape \[0, 32, 3\]"),
    "floats to 255": (torch.full((3, 8, 8), 254.0), "floats from 254 to 254; give floats from 0 to 1, or uint8"),
    "floats below 0": (np.full((8, 8, 3), -0.5), "floats from -0.5 to -0.5; give floats from 0 to 1"),
    "NaN": (np.full((8, 8, 3), np.nan), "floats from nan to nan; give floats from 0 to 1"),
    "whole numbers": (np.zeros((8, 8, 3), np.int64), "dtype int64; give uint8"),
    "truth values": (torch.zeros(3, 8, 8, dtype=torch.bool), "dtype bool; give uint8"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_no_image_is_refused(name: str, classifier: Classifier):
    images, said = MISTAKES[name]
    asked = classifier.predict, classifier.predict_proba, classifier.features, classifier.explain, classifier.preprocess
    for ask in asked:
        with pytest.raises(InputError, match=said):
            ask(images)


def test_a_file_that_cannot_be_read_is_named(classifier: Classifier, folder: Path, tmp_path: Path):
    (tmp_path / "broken.png").write_bytes((folder / "a.png").read_bytes()[:60])
    for images in ([folder / "a.png", tmp_path / "broken.png"], tmp_path, [Image.open(tmp_path / "broken.png")]):
        with pytest.raises(InputError, match=r"broken\.png cannot be read"):
            classifier.predict(images)
    with pytest.raises(InputError, match=r"gone\.png cannot be read: No such file"):
        classifier.predict(tmp_path / "gone.png")


def test_a_folder_without_images_is_refused(classifier: Classifier, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(InputError, match="holds no images"):
        classifier.predict(tmp_path)


def test_the_device_is_checked(run: Path):
    with pytest.raises(InputError, match="gpu"):
        load_classifier(run, "gpu")


def test_the_classifier_of_a_fit_lies_below_its_folder(tmp_path: Path):
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "fit.json").write_text('{"chosen": "tcm"}')
    assert chosen_run(tmp_path / "fit") == tmp_path / "fit" / "tcm"
    assert chosen_run(tmp_path / "fit" / "tcm") == tmp_path / "fit" / "tcm"
    assert chosen_run(tmp_path / "gone") == tmp_path / "gone"
