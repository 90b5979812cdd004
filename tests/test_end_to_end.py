"""What a new user does on the command line, from data to a report."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tcm.cli.app import main
from tcm.config import to_json
from tcm.data import digits
from tcm.methods import METHODS


def test_the_demo_shows_all_methods_and_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["demo", "--out", str(tmp_path / "demo"), "--steps", "4", "-q"]) == 0
    shown = capsys.readouterr().out
    page = tmp_path / "demo" / "report" / "index.html"
    assert str(page) in shown
    html = page.read_text()
    for method, folder in (("erm", "erm"), ("dann", "dann"), ("baseline", "baseline"), ("tcm", "tcm")):
        assert method in shown
        result = json.loads((tmp_path / "demo" / folder / "evaluation.json").read_text())
        assert result["selection"] == "last"
        config = json.loads((tmp_path / "demo" / folder / "config.json").read_text())
        assert config["method"] == to_json(METHODS[method].for_images(small=True))
        assert f"{100 * result['target']['accuracy']:.1f}%" in html


def write_digits(folder: Path, side: digits.Side, classes: bool) -> None:
    made = digits.domain(side)
    for index in range(120):
        place = folder / str(made.labels[index]) if classes else folder
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(made.images[index]).save(place / f"{made.numbers[index]}.png")


def test_two_folders_to_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_digits(tmp_path / "photos", "source", classes=True)
    write_digits(tmp_path / "cliparts", "target", classes=False)
    run = tmp_path / "run"
    data = ["--data.source-dir", str(tmp_path / "photos"), "--data.target-dir", str(tmp_path / "cliparts")]
    small = ["--data.size", "32", "--data.crop", "32", "--data.no-flip", "--backbone.name", "small"]
    assert main(["train", "dann", *data, *small, "--steps", "20", "--out", str(run), "-q"]) == 0
    assert "no labels" in capsys.readouterr().out
    assert main(["predict", str(run), str(tmp_path / "cliparts"), "--csv", str(tmp_path / "out.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert len(rows) == 120
    assert {row["class"] for row in rows} <= set(digits.CLASSES)
    stored = np.load(run / "evaluation.npz")
    expected = {path: int(p.argmax()) for path, p in zip(stored["paths"], stored["probabilities"], strict=True)}
    assert all(expected[row["path"]] == int(row["class"]) for row in rows)
    assert main(["report", str(run)]) == 0
    assert "Target accuracy, estimated" in (run / "report" / "index.html").read_text()


def test_a_model_needs_no_other_file(tmp_path: Path):
    """model.safetensors classifies without the run's data, state and metrics."""
    write_digits(tmp_path / "new", "target", classes=False)
    run = tmp_path / "run"
    assert main(["train", "erm", "--data.benchmark", "digits", "--steps", "4", "--out", str(run), "-q"]) == 0
    for file in run.iterdir():
        if file.name not in ("model.safetensors", "config.json"):
            file.unlink()
    assert main(["predict", str(run), str(tmp_path / "new"), "--csv", str(tmp_path / "o.csv")]) == 0
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 121


def test_office_home_with_a_resnet(shared_data: Path, tmp_path: Path):
    """Real images through the path that a benchmark takes: five classes, two steps."""
    for domain in ("Art", "Clipart"):
        for name in sorted((shared_data / "office-home" / domain).iterdir())[:5]:
            files = sorted(name.iterdir())[:6]
            place = tmp_path / "data" / domain / name.name
            place.mkdir(parents=True)
            for file in files:
                shutil.copy(file, place)
    data = ["--data.root", str(tmp_path / "data"), "--data.source", "art", "--data.target", "clip art"]
    small = ["--data.size", "72", "--data.crop", "64", "--batch", "4", "--steps", "2", "--precision", "fp32"]
    weights = ["--backbone.weights", str(shared_data / "resnet50-imagenet.safetensors")]
    assert main(["train", "dann", *data, *small, *weights, "--out", str(tmp_path / "run"), "-q"]) == 0
    result = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert result["target"]["images"] == 30
    assert json.loads((tmp_path / "run" / "config.json").read_text())["backbone"]["stride_in_1x1"]
