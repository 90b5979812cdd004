"""The estimator on images, in every form that they have."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import tcm
from tcm.data.task import Task

SHORT: dict[str, Any] = {"steps": 2, "batch": 8, "data": {"flip": False}, "device": "cpu"}


@pytest.fixture(scope="module")
def images(digits: Task) -> np.ndarray:
    """Twenty images of each domain."""
    return np.concatenate([store.images[:20].numpy() for store in digits])


@pytest.fixture(scope="module")
def labels(digits: Task) -> np.ndarray:
    return np.r_[digits.source.labels[:20].numpy(), np.full(20, -1)]


@pytest.fixture(scope="module")
def fitted(images: np.ndarray, labels: np.ndarray) -> tcm.TCMClassifier:
    return tcm.TCMClassifier("dann", **SHORT).fit(images, labels)


def written(images: np.ndarray, folder: Path) -> list[Path]:
    files = [folder / f"{number:02d}.png" for number in range(len(images))]
    for image, file in zip(images, files, strict=True):
        Image.fromarray(image).save(file)
    return files


FORMS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "channels first": lambda images, folder: np.moveaxis(images, -1, 1),
    "tensor": lambda images, folder: torch.from_numpy(images).movedim(-1, 1),
    "PIL images": lambda images, folder: [Image.fromarray(image) for image in images],
    "paths": written,
    "array of paths": lambda images, folder: np.array([str(file) for file in written(images, folder)]),
    "column of paths": lambda images, folder: pd.Series([str(file) for file in written(images, folder)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(
    form: str, fitted: tcm.TCMClassifier, images: np.ndarray, labels: np.ndarray, tmp_path: Path
):
    given, expected = FORMS[form](images, tmp_path), fitted.predict_proba(images)
    assert np.array_equal(fitted.predict_proba(given), expected)
    if form in ("channels first", "column of paths"):
        again = tcm.TCMClassifier("dann", **SHORT).fit(given, labels)
        assert np.array_equal(again.predict_proba(images), expected)


def test_labels_come_back_as_they_were_given(fitted: tcm.TCMClassifier, images: np.ndarray, labels: np.ndarray):
    assert fitted.classes_.tolist() == np.unique(labels[:20]).tolist()
    predicted = fitted.predict(images)
    assert predicted.dtype == labels.dtype
    assert fitted.score(images, labels) == np.mean(predicted[:20] == labels[:20])
    assert fitted.classifier_ is not None
    assert fitted.classifier_.explain(images[:2]).shape == (2, 32, 32)
    assert fitted.classifier_.config.data.crop == 32  # small images keep their size


def test_tcm_trains_its_mechanisms_first(images: np.ndarray, labels: np.ndarray):
    settings = {"settings": {"only_useful": False}, "mechanisms": {"steps": 2, "batch": 4}}
    with_mechanisms = tcm.TCMClassifier(k=2, **settings, **SHORT).fit(images, labels)
    without = tcm.TCMClassifier(k=0, settings={"only_useful": False}, **SHORT).fit(images, labels)
    names = [one.classifier_.method_name for one in (with_mechanisms, without) if one.classifier_ is not None]
    assert names == ["tcm", "tcm-control"]
    assert not np.array_equal(with_mechanisms.predict_proba(images), without.predict_proba(images))


def test_it_is_saved_as_a_model_that_the_library_loads(fitted: tcm.TCMClassifier, images: np.ndarray, tmp_path: Path):
    fitted.save(tmp_path / "saved")
    expected = fitted.predict_proba(images)
    again = tcm.TCMClassifier.load(tmp_path / "saved", device="cpu")
    assert np.array_equal(again.predict_proba(images), expected)
    assert np.array_equal(again.predict(images), fitted.predict(images))
    assert np.array_equal(tcm.load(tmp_path / "saved", device="cpu").predict_proba(images), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(again)).predict_proba(images), expected)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"k": 2}, "`k` is 2, but dann uses no mechanisms"),
        ({"method": "tcm-paper", "k": 0}, "`k` is 0, but tcm-paper uses mechanisms"),
        ({"data": {"sizee": 32}}, r"`data\.sizee` is not a setting; did you mean `data\.size`"),
        ({"method": "tcm", "mechanisms": {"stepps": 2}}, r"`mechanisms\.stepps` is not a setting"),
        ({"settings": {"tradeoff": 1.0}}, r"`settings\.tradeoff` is not a setting"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], said: str, images: np.ndarray, labels: np.ndarray):
    with pytest.raises(tcm.InputError, match=said):
        tcm.TCMClassifier(**{"method": "dann", **SHORT, **settings}).fit(images, labels)


def test_wrong_images_are_refused(fitted: tcm.TCMClassifier, images: np.ndarray, labels: np.ndarray, tmp_path: Path):
    with pytest.raises(tcm.InputError, match="floats from 0 to 255; give floats from 0 to 1, or uint8"):
        tcm.TCMClassifier("dann", **SHORT).fit(np.linspace(0, 255, images.size).reshape(images.shape), labels)
    with pytest.raises(tcm.InputError, match="has 39 images, but `y` has 40 labels"):
        tcm.TCMClassifier("dann", **SHORT).fit(images[1:], labels)
    with pytest.raises(tcm.InputError, match=r"gone\.png cannot be read"):
        tcm.TCMClassifier("dann", **SHORT).fit([*written(images[1:], tmp_path), tmp_path / "gone.png"], labels)
    with pytest.raises(tcm.InputError, match=r"shape \[40, 3072\]; give RGB images"):
        fitted.predict(images.reshape(40, -1))
