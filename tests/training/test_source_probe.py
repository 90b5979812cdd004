import numpy as np
import pytest
import torch
from scipy.stats import binom

from tcm.training.source_probe import (
    FOLDS,
    cross_validated,
    folds_of,
    linear_probe,
    recognition,
    resampled,
    shapes,
    stratified,
)


def test_recognition_is_mcnemars_exact_test():
    labels = torch.zeros(100, dtype=torch.int64)
    labels[:50] = 1
    before, after = labels.clone(), labels.clone()
    before[:3] = 0  # three images are recognised only after the change
    after[40:55] = 1 - after[40:55]  # fifteen only before it
    found = recognition(labels, before, after)
    assert (found.images, found.classes) == (100, 2)
    assert (found.before, found.after) == (pytest.approx(0.97), pytest.approx(0.85))
    assert found.p_value == pytest.approx(binom.sf(14, 18, 0.5))
    assert found.tells_something
    assert found.lost == pytest.approx(0.12 / 0.47)
    assert recognition(labels, before, before).p_value == 1


def test_a_loss_that_may_be_noise_counts_as_none():
    labels = torch.arange(40) % 2
    after = labels.clone()
    after[:3] = 1 - after[:3]
    assert recognition(labels, labels, after).lost == 0


def test_a_classifier_no_better_than_chance_tells_nothing():
    labels = torch.arange(200) % 4
    guesses = torch.randint(0, 4, (200,), generator=torch.Generator().manual_seed(0))
    assert not recognition(labels, guesses, guesses).tells_something
    few = labels[:12]
    assert not recognition(few, few, few).tells_something
    assert not recognition(labels[:0], labels[:0], labels[:0]).tells_something


def test_rows_are_spread_over_the_classes_and_unknown_labels_are_left_out():
    labels = torch.tensor([0] * 90 + [1] * 10 + [2] + [-1] * 5)
    rows = stratified(labels, 40)
    assert torch.equal(rows, stratified(labels, 40))
    assert len(rows.unique()) == 40
    assert labels[rows].bincount().tolist() == [30, 10]  # all of the small class, none of that with one image
    assert len(stratified(torch.tensor([-1, -1]), 5)) == 0
    folds = folds_of(labels[rows])
    for label in (0, 1):
        counts = folds[labels[rows] == label].bincount(minlength=FOLDS)
        assert int(counts.max() - counts.min()) <= 1


def test_no_image_is_predicted_by_a_classifier_that_saw_it():
    labels, rows = torch.arange(30) % 2, torch.arange(30.0)[:, None]
    seen: list[set[float]] = []

    def fit(features: torch.Tensor, _: torch.Tensor):
        known = set(features.flatten().tolist())
        seen.append(known)
        return lambda some: torch.tensor([int(value in known) for value in some.flatten().tolist()])

    found = cross_validated(rows, labels, {"plain": rows, "other": rows.flip(0)}, fit)
    assert len(seen) == FOLDS
    assert found["plain"].sum() == 0
    assert found["other"].sum() > 0


def test_the_linear_probe_learns_directions_and_not_lengths():
    rng = np.random.default_rng(0)
    labels = torch.arange(60) % 3
    features = torch.eye(3)[labels] * torch.from_numpy(rng.uniform(0.1, 10, (60, 1))).float()
    assert torch.equal(linear_probe(features, labels)(torch.eye(3) * 5), torch.arange(3))


def test_shapes_have_no_colour_brightness_or_contrast():
    image = torch.randint(0, 80, (1, 32, 32, 1), generator=torch.Generator().manual_seed(0)).expand(-1, -1, -1, 3)
    brighter = (image * 2 + 40).byte()
    torch.testing.assert_close(shapes(image.byte()), shapes(brighter), atol=0.2, rtol=0)
    tinted = image.byte().clone()
    tinted[..., 0] += 50
    torch.testing.assert_close(shapes(image.byte()), shapes(tinted), atol=0.02, rtol=0)


def test_images_are_averaged_when_they_are_reduced():
    fine = torch.zeros(1, 64, 64, 3, dtype=torch.uint8)
    fine[:, ::2] = 200  # stripes of one pixel
    found = resampled(fine).float()
    assert found.shape == (1, 32, 32, 3)
    assert (found[:, 2:-2] - 100).abs().max() < 30
    assert resampled(fine, 64) is fine
