from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tcm.classifier.evaluate import (
    centre_crop_batches,
    confusion_counts,
    predict_images,
    predict_task,
    probabilities,
    score,
)
from tcm.classifier.evaluation_files import training_memory
from tcm.data.task import Task
from tcm.methods.erm import ERMConfig
from tcm.methods.method import Problem
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import make_fabric
from tcm.training.loss_meter import peak_memory
from tcm.training.run_folder import Run


class Reader:
    """Predicts the class that is written in an image's first centre pixel."""

    def predict(self, images: Tensor) -> Tensor:
        value = (images[:, 0, 0, 0] * 255).round().long()
        return torch.nn.functional.one_hot(value, 5).float() * 9


@pytest.fixture
def batches_of_four(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tcm.classifier.evaluate.BATCH", 4)


@pytest.mark.usefixtures("batches_of_four")
def test_every_image_gets_its_own_prediction_also_in_the_last_batch():
    images = torch.zeros(11, 6, 6, 3, dtype=torch.uint8)
    images[:, 1, 1, 0] = torch.arange(11) % 5
    found = probabilities(make_fabric("cpu", "fp32"), Reader().predict, images, crop=4)
    assert found.shape == (11, 5)
    assert torch.equal(found.argmax(dim=1), torch.arange(11) % 5)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(11))


@pytest.mark.usefixtures("batches_of_four")
def test_probabilities_and_features_come_of_one_pass():
    method, passes = ERMConfig().build(Problem(5, BackboneConfig("small").build())).eval(), []
    method.backbone.register_forward_hook(lambda *_: passes.append(1))
    images = torch.randint(256, (11, 32, 32, 3), dtype=torch.uint8)
    found = predict_images(make_fabric("cpu", "fp32"), method.answer, images, crop=32)
    assert len(passes) == 3
    torch.testing.assert_close(found.features, method.features(images.permute(0, 3, 1, 2) / 255).detach())
    alone = probabilities(make_fabric("cpu", "fp32"), method.predict, images, 32)
    assert torch.equal(found.probabilities, alone)


@pytest.mark.parametrize(("crop", "sizes"), [(32, [256, 44]), (224, [32] * 9 + [12]), (2000, [1] * 300)])
def test_the_larger_images_are_the_fewer_go_at_once(crop: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "tcm.classifier.evaluate.crop_images", lambda _, chosen: torch.zeros(len(chosen.indices), 1, 1, 3).byte()
    )
    images = torch.zeros(1, 1, 1, 1, dtype=torch.uint8).expand(300, crop, crop, 3)
    assert [len(batch) for batch in centre_crop_batches(images, crop, torch.device("cpu"))] == sizes


def test_the_two_accuracies_differ_where_classes_differ_in_size():
    truth = torch.tensor([0, 0, 0, 0, 1, 1, -1])
    guess = torch.tensor([0, 0, 0, 0, 0, 1, 2])
    scores = score(torch.nn.functional.one_hot(guess, 3).float(), truth, 3)
    assert scores is not None
    assert scores.accuracy == 5 / 6
    assert scores.mean_class_accuracy == (1 + 0.5) / 2
    assert np.array_equal(confusion_counts(truth.numpy(), guess.numpy(), 3), [[4, 0, 0], [1, 1, 0], [0, 0, 0]])


def test_without_labels_there_is_no_score():
    assert score(torch.rand(3, 2), torch.full((3,), -1), 2) is None


def test_the_memory_of_a_run_is_the_largest_of_all_its_sessions(tmp_path: Path):
    run = Run(tmp_path / "run")
    run.start({})
    assert training_memory(run) is None
    for step, memory in ((10, {"memory": 5.0}), (20, {"memory": 7.5}), (20, {}), (30, {"memory": 6.0})):
        run.append_metrics({"step": step, **memory})
    assert training_memory(run) == 7.5
    assert peak_memory(torch.device("cpu")) == {}


def test_a_long_evaluation_shows_its_progress(
    digits: Task, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("tcm.progress.LINE_EVERY", 0.0)
    method = ERMConfig().build(Problem(10, BackboneConfig("small").build())).eval()
    predict_task(make_fabric("cpu", "fp32"), method, digits, 32, quiet=False)
    lines = capsys.readouterr().err.splitlines()
    total = len(digits.source) + len(digits.target)
    assert len(lines) > 4
    assert lines[0].startswith(f"evaluate: 256/{total} images")
    assert lines[-1].startswith(f"evaluate: {total}/{total} images")
    predict_task(make_fabric("cpu", "fp32"), method, digits, 32, quiet=True)
    assert capsys.readouterr().err == ""
