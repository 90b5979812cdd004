"""The page of an audit in a real browser: labels by keyboard, undo, a reload, and the exported file."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from tcm.cli.app import main
from tcm.estimation.audit import NONE, UNSURE, read_audit, read_labels, read_sample
from tcm.estimation.inputs import read_predictions

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def train(root: Path, classes: list[str]) -> Path:
    """A short run on random images of these classes."""
    random = np.random.default_rng(0)
    for domain in ("photos", "cliparts"):
        for name in classes:
            (root / domain / name).mkdir(parents=True)
            for number in range(2):
                Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(
                    root / domain / name / f"{number}.png"
                )
    folders = ["--data.source-dir", str(root / "photos"), "--data.target-dir", str(root / "cliparts")]
    options = ["--data.size", "32", "--data.crop", "32", "--steps", "1", "--batch", "2", "-q"]
    assert main(["train", "erm", *folders, *options, "--out", str(root / "run")]) == 0
    return root / "run"


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("few"), ["cup", "hat", "key"])


def opened(browser: "Browser", run: Path, n: int, complaints: list[str]) -> "Page":
    assert main(["audit", str(run), "--n", str(n), "-q"]) == 0
    page = browser.new_page(viewport={"width": 390, "height": 800}, accept_downloads=True)
    page.on("request", lambda request: None if request.url.startswith(("data:", "file:")) else complaints.append("net"))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((run / "audit.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    return page


def exported(page: "Page", file: Path) -> Path:
    with page.expect_download() as download:
        page.click("text=Export the labels")
    download.value.save_as(file)
    return file


def test_one_key_per_image_and_the_result_is_stored(
    browser: "Browser", few: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    complaints: list[str] = []
    page = opened(browser, few, 5, complaints)
    assert page.inner_text("#count") == "image 1 of 5"
    assert [key.strip() for key in page.locator("#classes kbd").all_inner_texts()] == ["c", "h", "k"]
    page.keyboard.press("c")
    page.keyboard.press("k")
    page.keyboard.press("Backspace")  # it was a hat
    page.keyboard.press("h")
    page.reload()
    assert page.inner_text("#count") == "image 3 of 5"  # the browser kept the labels
    page.click("text=none of these")
    page.keyboard.press("Space")
    page.keyboard.press("x")  # no class has this key
    assert page.inner_text("#count") == "image 5 of 5"
    page.keyboard.press("K")
    assert page.inner_text("#count") == "5 of 5 labelled"
    assert page.is_visible("#done")
    page.keyboard.press("c")  # there is nothing left to label
    file = exported(page, tmp_path / "labels.csv")
    page.close()
    sample = read_sample(few)
    expected = ["cup", "hat", NONE, UNSURE, "key"]
    assert read_labels(file, sample, ["cup", "hat", "key"]) == dict(zip(sample.paths, expected, strict=True))
    assert complaints == []

    capfd.readouterr()
    assert main(["audit", str(few), "--labels", str(file)]) == 0
    said = capfd.readouterr().out
    found = read_audit(few)
    assert found
    run = read_predictions(few)
    guesses = dict(zip(run.paths.tolist(), (run.classes[guess] for guess in run.predicted), strict=True))
    assert found.right == sum(guesses[path] == label for path, label in zip(sample.paths, expected, strict=True))
    assert said == f"{found.sentence}\n"
    assert main(["estimate", str(few)]) == 0
    assert found.sentence in capfd.readouterr().out


def test_many_classes_are_found_by_typing(browser: "Browser", tmp_path: Path):
    classes = [f"Object_{number:02d}" for number in range(40)]
    complaints: list[str] = []
    run = train(tmp_path, classes)
    page = opened(browser, run, 3, complaints)
    page.keyboard.type("t_31")
    page.keyboard.press("Backspace")  # a letter, not a label
    page.keyboard.type("2")
    assert page.locator("#classes button").all_inner_texts() == ["Object_32"]
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # nothing was typed
    assert page.inner_text("#count") == "image 2 of 3"
    page.keyboard.type("no such class")
    page.keyboard.press("Enter")
    assert page.inner_text("#count") == "image 2 of 3"
    page.fill("#find", "")
    page.click("text=Object_07")
    page.keyboard.press("Alt+-")
    labels = read_labels(exported(page, tmp_path / "labels.csv"), read_sample(run), classes)
    assert list(labels.values()) == ["Object_32", "Object_07", NONE]
    assert complaints == []
    page.close()
