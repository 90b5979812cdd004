import json
from pathlib import Path

import numpy as np
import torch

import tcm
from tcm.classifier.evaluation_files import images_to_show
from tcm.classifier.trained import evaluate_run
from tcm.data.holdout import held_out_images
from tcm.data.task import Task


def arrays_of(run: Path) -> dict[str, np.ndarray]:
    with np.load(run / "evaluation.npz") as stored:
        return {**stored}


def test_an_evaluation_has_what_estimates_need_and_a_repeated_one_too(digits: Task, tmp_path: Path):
    run, data = tmp_path / "run", {"benchmark": "digits"}
    tcm.train("erm", out=run, data=data, steps=2, batch=8, seed=3, held_out=0.2, quiet=True)
    first, summary = arrays_of(run), json.loads((run / "evaluation.json").read_text())
    held_out = held_out_images(digits.source, 0.2, seed=3).numpy()
    assert np.array_equal(first["held_out"], held_out)
    assert np.array_equal(first["source_classes"], digits.source.labels.numpy())
    assert first["on_source"].shape == (len(digits.source), 10)
    np.testing.assert_allclose(first["on_source"].sum(axis=1), 1, rtol=1e-5)
    right = first["on_source"].argmax(axis=1) == first["source_classes"]
    assert summary["source"]["held_out"] == held_out.sum()
    assert summary["source"]["held_out_accuracy"] == right[held_out].mean()
    assert all(0 <= share <= 1 for share in summary["neighbours"].values())

    evaluate_run(run, "cpu", quiet=True)
    assert {name: array.tolist() for name, array in arrays_of(run).items()} == {
        name: array.tolist() for name, array in first.items()
    }
    assert json.loads((run / "evaluation.json").read_text()) == summary


def test_without_held_out_images_none_is_marked(digits: Task, tmp_path: Path):
    run = tmp_path / "run"
    tcm.train("erm", out=run, data={"benchmark": "digits"}, steps=1, batch=8, quiet=True)
    summary = json.loads((run / "evaluation.json").read_text())
    assert not arrays_of(run)["held_out"].any()
    assert (summary["source"]["held_out"], summary["source"]["held_out_accuracy"]) == (0, None)
    assert summary["neighbours"]["held_out"] is None


def test_no_image_is_shown_twice():
    confidence = torch.linspace(0.3, 0.95, 60)
    predictions = torch.stack([confidence, 1 - confidence], dim=1)
    guesses = predictions.argmax(dim=1)
    labels = guesses.clone()
    wrong = [18, 5, 50, 58]  # the first is among the most doubtful images too
    labels[wrong] = 1 - labels[wrong]
    for known in (labels, torch.full_like(labels, -1)):
        shown = images_to_show(predictions, known).tolist()
        assert len(set(shown)) == len(shown)
    shown = images_to_show(predictions, labels).tolist()
    assert set(wrong) <= set(shown)
    assert shown[24:26] == [58, 50]  # the most confident mistake first


def test_of_confident_predictions_without_labels_all_classes_are_shown_in_turn():
    guess = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    confidence = torch.linspace(1, 0.5, 100)  # class 0 is the most confident
    predictions = torch.full((100, 3), 0.0).scatter_(1, guess[:, None], confidence[:, None])
    shown = images_to_show(predictions, torch.full((100,), -1))[24:].tolist()
    assert shown[:4] == [0, 60, 1, 61]
    assert guess[shown].bincount().tolist() == [6, 6]  # the images of class 2 are among the least confident
