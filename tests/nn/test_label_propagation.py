import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tcm.nn import label_propagation
from tcm.nn.label_propagation import (
    PropagationConfig,
    as_probabilities,
    class_anchors,
    confidence,
    nearest,
    normalised_graph,
    propagated_labels,
    spread_labels,
)

Array = NDArray[np.float64]


def dense_graph(points: Array, k: int) -> Array:
    """The normalised graph as a full matrix, as in the authors' code."""
    weights = np.maximum(points @ points.T, 0)
    for row in weights:
        row[np.argsort(-row)[k:]] = 0
    weights = weights + weights.T
    np.fill_diagonal(weights, 0)
    scale = 1 / np.sqrt(weights.sum(axis=1) + 1e-8)
    return scale[:, None] * weights * scale


def plain_a2lp(source: Array, labels: list[int], target: Array, classes: int, rounds: int, k: int, a: float) -> Array:
    """A2LP with full matrices and loops over classes."""

    def unit(rows: Array) -> Array:
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

    source, target = unit(source), unit(target)
    points, given = [*source], [*np.eye(classes)[labels]]
    found = np.zeros((len(target), classes))
    for _ in range(rounds):
        graph = dense_graph(np.array([*points, *target]), k)
        known = np.array([*given, *np.zeros((len(target), classes))])
        spread = np.linalg.inv(np.eye(len(graph)) - a * graph) @ known
        found = spread[len(points) :]
        found = found / found.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(found > 0, found * np.log(found), 0)
        sure = 1 + terms.sum(axis=1) / math.log(classes)
        for c in range(classes):
            chosen = found.argmax(axis=1) == c
            if chosen.any():
                points.insert(0, unit((sure[chosen, None] * target[chosen]).sum(axis=0)))
                given.insert(0, np.eye(classes)[c])
    return found


def clusters(seed: int, shift: float = 0.5) -> tuple[Array, list[int], Array, list[int]]:
    """Source and shifted target points around three centres."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(3, 8))
    labels, truth = [i % 3 for i in range(15)], [i % 3 for i in range(24)]
    moved = shift * generator.normal(size=8)
    source = centres[labels] + 0.3 * generator.normal(size=(15, 8))
    return source, labels, centres[truth] + moved + 0.3 * generator.normal(size=(24, 8)), truth


@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize(("k", "spreading"), [(12, 0.5), (30, 0.75)])
def test_it_is_a_plain_version_with_full_matrices(rounds: int, k: int, spreading: float):
    source, labels, target, _ = clusters(rounds)
    config = PropagationConfig(rounds, k, spreading)
    tensors = torch.from_numpy(source), torch.tensor(labels), torch.from_numpy(target)
    found = propagated_labels(*tensors, 3, config)
    expected = plain_a2lp(source, labels, target, 3, rounds, k, spreading)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    single = propagated_labels(tensors[0].float(), tensors[1], tensors[2].float(), 3, config)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single.numpy(), expected, atol=1e-4)


def test_anchors_help_where_the_target_is_shifted():
    right = np.zeros((20, 2))
    for seed in range(20):
        source, labels, target, truth = clusters(seed, shift=1.2)
        for column, rounds in enumerate((1, 6)):
            tensors = torch.from_numpy(source), torch.tensor(labels), torch.from_numpy(target)
            found = propagated_labels(*tensors, 3, PropagationConfig(rounds, neighbours=12))
            right[seed, column] = (found.argmax(dim=1).numpy() == np.array(truth)).mean()
    plain, with_anchors = right.mean(axis=0)
    assert with_anchors > plain + 0.03


def test_similarities_may_be_computed_block_by_block(monkeypatch: pytest.MonkeyPatch):
    points = torch.nn.functional.normalize(torch.randn(50, 6), dim=1)
    whole = nearest(points, points, 7)
    monkeypatch.setattr(label_propagation, "SIMILARITIES_AT_ONCE", 120)
    for one, other in zip(whole, nearest(points, points, 7), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(whole.similarities[:, 0], torch.ones(50))
    assert torch.equal(whole.indices[:, 0], torch.arange(50))  # itself


def test_the_solver_solves_every_column_and_leaves_empty_ones_empty():
    points = torch.nn.functional.normalize(torch.rand(40, 5, dtype=torch.float64), dim=1)
    graph, given = normalised_graph(nearest(points, points, 6)), torch.zeros(40, 3, dtype=torch.float64)
    given[:4, 0], given[4:6, 2] = 1, 1
    found = spread_labels(graph, given, 0.9)
    expected = torch.linalg.solve(torch.eye(40).double() - 0.9 * graph.to_dense(), given)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not found[:, 1].any()


def test_a_point_that_no_label_reaches_has_equal_probabilities_and_no_confidence():
    source, target = torch.eye(4)[:2], torch.eye(4)[[0, 3]]
    found = propagated_labels(source, torch.tensor([0, 1]), target, 2, PropagationConfig(3, neighbours=2))
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    torch.testing.assert_close(confidence(found), torch.tensor([1.0, 0.0]), atol=1e-4, rtol=0)
    assert as_probabilities(torch.zeros(1, 4)).tolist() == [[0.25] * 4]


def test_an_anchor_is_the_weighted_mean_of_its_class_and_empty_classes_have_none():
    points = torch.nn.functional.normalize(torch.rand(3, 4), dim=1)
    probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.0, 0.0, 1.0]])
    anchors, labels = class_anchors(points, probabilities)
    first, second = (1 + sum(p * math.log(p) for p in row if p) / math.log(3) for row in ((0.9, 0.1), (0.6, 0.3, 0.1)))
    mean = first * points[0] + second * points[1]
    torch.testing.assert_close(anchors, torch.stack([mean / mean.norm(), points[2]]), atol=1e-4, rtol=1e-4)
    assert labels.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_one_labelled_point_and_two_classes_are_enough():
    found = propagated_labels(torch.rand(1, 3), torch.tensor([1]), torch.rand(2, 3), 2, PropagationConfig())
    assert found.argmax(dim=1).tolist() == [1, 1]
    assert found.isfinite().all()
