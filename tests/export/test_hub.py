"""The folder for the Hugging Face Hub."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from support.exportable import CLASSES, draw_task, write_run

import tcm
from tcm.classifier.trained import load_trained
from tcm.cli.app import main
from tcm.export.export import export_classifier

EVALUATION = {
    "selection": "last",
    "source": {"name": "Art", "images": 6, "accuracy": 0.99},
    "target": {"name": "Clipart", "images": 9, "labelled": 0, "accuracy": None},
}
ESTIMATE = {"accuracy": 0.7231, "low": 0.63, "high": 0.81, "error": 0.062, "cases": 40}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hub")
    for name in ("dann", "tcm-paper", "tcm"):
        write_run(place / name, name, "small", draw_task(place / "data", 36, 32))
    (place / "dann" / "evaluation.json").write_text(json.dumps(EVALUATION))
    (place / "dann" / "estimate.json").write_text(json.dumps(ESTIMATE))
    return place


@pytest.fixture(scope="module")
def folder(runs: Path) -> Path:
    made = export_classifier(runs / "dann", runs / "published", "hub", licence="cc-by-4.0", quiet=True)
    assert made.checked.largest == 0
    assert {file.name for file in made.place.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    return made.place


@pytest.mark.parametrize("name", ["dann", "tcm-paper", "tcm"])
def test_a_folder_is_loaded_like_a_run(runs: Path, tmp_path: Path, name: str):
    assert export_classifier(runs / name, tmp_path / "hub", "hub", quiet=True).checked.largest == 0
    images = np.random.default_rng(0).integers(0, 256, (4, 36, 36, 3), dtype=np.uint8)
    ours, theirs = tcm.load(runs / name, device="cpu"), tcm.load(tmp_path / "hub", device="cpu")
    for fast in (False, True):
        assert np.array_equal(theirs.predict_proba(images, fast=fast), ours.predict_proba(images, fast=fast))
        assert np.array_equal(theirs.features(images, fast=fast), ours.features(images, fast=fast))


def test_training_parts_and_places_are_left_out(runs: Path, folder: Path):
    with safe_open(folder / "model.safetensors", "pt") as file:
        kept = set(file.keys())
    assert any("discriminator" in name for name in load_trained(runs / "dann").method.state_dict())
    assert not any("discriminator" in name for name in kept)
    assert {"classifier.weight", "backbone.mean"} <= kept
    for file in folder.iterdir():
        assert str(runs).encode() not in file.read_bytes(), file.name


def test_the_config_names_classes_and_sizes(folder: Path):
    found = json.loads((folder / "config.json").read_text())
    assert found["id2label"] == {str(index): name for index, name in enumerate(CLASSES)}
    assert found["label2id"] == {name: index for index, name in enumerate(CLASSES)}
    assert (found["size"], found["crop"], found["backbone"], found["std"]) == (36, 32, "small", [0.25] * 3)


def test_the_card_says_what_is_known(folder: Path):
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: tcm\npipeline_tag: image-classification\nlicense: cc-by-4.0\n")
    for part in (
        "3 classes",
        "cup, hat, key",
        "Labelled domain: Art, 6 images",
        "Domain to adapt to: Clipart, 9 images, without labels",
        "The last iterate",
        "estimated without labels: 72.3 %, interval 63.0 to 81.0 %",
        "on 40 known cases the estimate was off by 6.2 points",
        "under the licence cc-by-4.0",
    ):
        assert part in card
    assert not re.search(r"None|null|TODO|\[more|<[a-z]", card)


def test_the_card_says_what_is_not_known(runs: Path, tmp_path: Path):
    export_classifier(runs / "tcm", tmp_path / "hub", "hub", quiet=True)
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "license: other" in card
    assert "neither measured nor estimated" in card
    assert "No licence was stated" in card


def words(run: Path, out: Path, *more: str) -> list[str]:
    return ["export", str(run), "--format", "hub", "--out", str(out), "-q", *more]


def test_a_folder_is_uploaded(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked: list[tuple[Any, ...]] = []

    class Api:
        def create_repo(self, name: str, exist_ok: bool) -> str:
            asked.append((name, exist_ok))
            return f"https://hub/{name}"

        def upload_folder(self, repo_id: str, folder_path: Path, commit_message: str) -> None:
            asked.append((repo_id, sorted(file.name for file in folder_path.iterdir())))

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    assert main(words(runs / "dann", tmp_path / "hub", "--push", "me/model")) == 0
    assert asked == [("me/model", True), ("me/model", ["README.md", "config.json", "model.safetensors"])]
    assert "uploaded: https://hub/me/model" in capsys.readouterr().out


def test_without_a_network_the_folder_is_there(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", refuse)
    assert main(words(runs / "dann", tmp_path / "hub", "--push", "me/model")) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --push me/model could not be uploaded (no route to host); the folder")
    assert said.count("\n") == 1
    assert tcm.load(tmp_path / "hub", device="cpu").classes == CLASSES
