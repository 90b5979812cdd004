"""The proxy A-distance where the answer is known, and which images are embedded."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tcm.analysis.embedding import chosen_images, proxy_a_distance, tsne
from tcm.data.store import ImageStore
from tcm.data.task import Task
from tcm.errors import InputError


def normal(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 5))


def test_the_same_distribution_is_at_no_distance():
    assert proxy_a_distance(normal(600, 1), normal(600, 2)) == pytest.approx(0, abs=0.2)


def test_a_larger_domain_is_no_farther():
    assert proxy_a_distance(normal(900, 1), normal(100, 2)) == pytest.approx(0, abs=0.25)


def test_domains_that_a_plane_divides_are_at_distance_2():
    assert proxy_a_distance(normal(50, 1), normal(50, 2) + 20) == 2


def test_domains_that_half_overlap_are_at_distance_1():
    # At 0 stand all source images and half of the target's: no line does better than an error of 0 and of 1/2.
    source, target = np.zeros((40, 1)), np.repeat([[0.0], [1.0]], 20, axis=0)
    assert proxy_a_distance(source, target) == pytest.approx(1)


def test_the_plane_is_the_same_every_time():
    features = np.concatenate([normal(20, 1), normal(20, 2) + 20])
    points = tsne(features)
    assert points.shape == (40, 2)
    assert np.array_equal(points, tsne(features))


def store(labels: list[int], classes: int) -> ImageStore:
    names = tuple(f"class {number:02d}" for number in range(classes))
    images = torch.zeros(len(labels), 8, 8, 3, dtype=torch.uint8)
    paths = [str(number) for number in range(len(labels))]
    return ImageStore(Path(), "some", 8, images, torch.tensor(labels), paths, names, [], [], [])


def test_images_of_the_first_15_classes_are_chosen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tcm.analysis.embedding.POINTS", 30)
    task = Task(store(list(range(20)) * 10, 20), store([-1, *list(range(19, -1, -1)) * 10], 20))
    chosen = chosen_images(task)
    assert len(chosen.classes) == 15
    assert np.bincount(chosen.labels).tolist() == [4] * 15  # two of each domain
    assert torch.equal(task.target.labels[chosen.target], torch.from_numpy(chosen.labels[30:]))


def test_without_target_labels_images_of_all_classes_are_chosen():
    chosen = chosen_images(Task(store(list(range(20)), 20), store([-1] * 12, 20)))
    assert (len(chosen.source), len(chosen.target), len(chosen.classes)) == (20, 12, 20)
    assert set(chosen.labels[20:]) == {-1}


def test_too_few_images_are_refused():
    with pytest.raises(InputError, match="20 images of some and 9 images of some are too few to embed"):
        chosen_images(Task(store([0] * 20, 1), store([0] * 9, 1)))
