"""Whether mirrored images keep their class is known here: in digits, letters and arrows they do not, in photographs and
in shapes that have no left and right they do."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits
from torch import Tensor

from tcm.classifier import augmentation_evidence as module
from tcm.classifier.augmentation_evidence import (
    AugmentationEvidence,
    augmentation_evidence,
    evidence_of,
    read_evidence,
    settled_data,
)
from tcm.data.task import DataConfig, Task, load_task
from tcm.nn.backbone import BackboneConfig

SMALL = DataConfig(source_dir=Path("photos"), target_dir=Path("drawings"), size=32)
LARGE = dataclasses.replace(SMALL, size=256)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """These images are easy: half of the steps are enough."""
    monkeypatch.setattr("tcm.training.source_probe.STEPS", 75)


def drawn(count: int, shape: str, side: int = 32) -> Tensor:
    """Noisy images of arrows to the left, arrows to the right, or of discs and squares, at random places."""
    rng, images = np.random.default_rng(count), []
    for number in range(count):
        image = Image.new("RGB", (128, 128), tuple(rng.integers(120, 255, 3).tolist()))
        pen, (x, y) = ImageDraw.Draw(image), 64 + rng.uniform(-10, 10, 2)
        colour, length, head = tuple(rng.integers(0, 100, 3).tolist()), rng.uniform(32, 50), rng.uniform(16, 26)
        if shape == "arrows":
            way = 1 if number % 2 else -1
            pen.line([(x - way * length, y), (x + way * length, y)], fill=colour, width=8)
            tip = x + way * length
            pen.polygon([(tip, y), (tip - way * head, y - head), (tip - way * head, y + head)], fill=colour)
        else:
            form = pen.ellipse if number % 2 else pen.rectangle
            form([x - head, y - head, x + head, y + head], fill=colour)
        images.append(np.asarray(image.resize((side, side), Image.Resampling.BICUBIC)))
    noisy = np.stack(images) + rng.normal(0, 8, (count, side, side, 3))
    return torch.from_numpy(noisy.clip(0, 255).astype(np.uint8))


def test_mirrored_digits_are_not_recognised(digits: Task):
    found = augmentation_evidence(digits, SMALL, quiet=True)
    assert found.source == digits.source.fingerprint
    assert found.classifier == "a small network"
    assert found.mirrored.before > 0.9
    assert found.mirrored.after < 0.6
    assert found.mirrored.p_value < 1e-6
    assert found.data_fields == {"flip": False, "gentle": None}
    assert "mirrored images do not keep their class: a small network recognises" in found.mirrored.sentence
    assert found.strong.keeps_class  # strong views of small images are gentle


@pytest.mark.parametrize(("gentle", "answer"), [(None, "images keep"), (False, "images mostly keep")])
def test_images_that_lose_a_part_keep_their_class_mostly(digits: Task, gentle: bool | None, answer: str):
    found = augmentation_evidence(digits, dataclasses.replace(SMALL, gentle=gentle), quiet=True)
    assert found.strong.keeps_class
    assert f"{answer} their class" in found.strong.sentence


def test_few_handwritten_digits_are_enough():
    images, labels = load_digits(return_X_y=True)
    grey = torch.from_numpy(np.kron(np.reshape(images[:120], (-1, 8, 8)), np.ones((4, 4))) * 15.9).byte()
    colour = grey[..., None].expand(-1, -1, -1, 3)
    found = evidence_of(colour, torch.from_numpy(labels[:120]), "0123456789", SMALL, quiet=True)
    assert found.mirrored.images == 120
    assert not found.mirrored.keeps_class


def test_arrows_to_the_left_and_right_are_swapped():
    labels = torch.arange(90) % 2
    found = evidence_of(drawn(90, "arrows"), labels, ["left", "right"], SMALL, quiet=True)
    assert found.mirrored.before > 0.9
    assert found.mirrored.after < 0.1
    assert found.data_fields["flip"] is False
    assert "is taken for" in found.mirrored.sentence


def test_one_pair_among_symmetric_classes_is_enough():
    """Most traffic signs have no left and right: the accuracy of all images hardly tells."""
    shapes, arrows = drawn(160, "shapes"), drawn(60, "arrows")
    light = torch.arange(160) // 2 % 4  # four kinds of background
    shapes[:, :4] = (40 + 50 * light).byte()[:, None, None, None]
    images = torch.cat([shapes, arrows])
    labels = torch.cat([torch.arange(160) % 2, 2 + torch.arange(60) % 2])
    found = evidence_of(images, labels, ["square", "disc", "left", "right"], SMALL, quiet=True)
    assert found.mirrored.before > 0.8
    assert not found.mirrored.keeps_class
    assert "left is taken for right" in found.mirrored.sentence or "right is taken for left" in found.mirrored.sentence


def test_shapes_without_left_and_right_are_mirrored():
    labels = torch.arange(90) % 2
    found = evidence_of(drawn(90, "shapes"), labels, ["square", "disc"], SMALL, quiet=True)
    assert found.mirrored.before > 0.8
    assert found.data_fields["flip"] is True


def test_noise_and_too_few_images_decide_nothing():
    rng = np.random.default_rng(0)
    noise = torch.from_numpy(rng.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8))
    for images in (noise, noise[:6], noise[:0]):
        found = evidence_of(images, torch.arange(len(images)) % 3, ["a", "b", "c"], SMALL, quiet=True)
        assert found.data_fields == {"flip": True, "gentle": None}
        assert "cannot be said" in found.mirrored.sentence


def test_what_the_user_states_is_kept_and_the_answer_is_noted(
    digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []
    answer = AugmentationEvidence("", "a small network", *(module.ChangeEvidence(90, 1.0, 0.1, 0.0, False, "no"),) * 2)

    def noted(task: Task, *_: object) -> AugmentationEvidence:
        asked.append(task.source.fingerprint)
        return dataclasses.replace(answer, source=task.source.fingerprint)

    monkeypatch.setattr(module, "augmentation_evidence", noted)
    file = tmp_path / "run" / "augmentation.json"
    for config in (dataclasses.replace(SMALL, flip=True), DataConfig(benchmark="digits")):
        assert settled_data(config, digits, None, file) == (config, None)
    assert not asked
    first = settled_data(LARGE, digits, None, file)
    assert first == (dataclasses.replace(LARGE, flip=False, gentle=True), first[1])
    assert settled_data(LARGE, digits, None, file) == first
    assert read_evidence(file) == first[1]
    assert len(asked) == 1
    stated = dataclasses.replace(LARGE, flip=True)
    assert settled_data(stated, digits, None, file)[0] == dataclasses.replace(stated, gentle=True)
    assert settled_data(LARGE, Task(digits.target, digits.source), None, file)[0].flip is False
    assert asked == [digits.source.fingerprint, digits.target.fingerprint]  # other images are asked again
    file.write_text(json.dumps({"source": 1}))
    assert read_evidence(file) is None


def test_mirrored_photographs_keep_their_class(shared_data: Path):
    weights = shared_data / "resnet50-torchvision.safetensors"
    if not weights.exists():
        pytest.skip("no ImageNet weights")
    config = DataConfig(root=shared_data / "office-home", source="Art", target="Clipart", size=128)
    source = load_task(config, quiet=True).source
    few = (source.labels < 5).nonzero().flatten()[::2]
    backbone = BackboneConfig("resnet50.tv_in1k", weights).build()
    found = evidence_of(source.images[few], source.labels[few], source.classes, config, backbone, quiet=True)
    assert found.classifier == "a linear classifier on pretrained features"
    assert found.mirrored.before > 0.7
    assert found.mirrored.after > found.mirrored.before - 0.1
    assert found.data_fields == {"flip": True, "gentle": None}
    assert backbone.training  # as it was
