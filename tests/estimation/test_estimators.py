"""Each estimator on a case whose answer is known."""

import itertools
import math

import numpy as np
import pytest

from tcm.estimation.estimators import (
    agreement,
    apportioned,
    assigned_classes,
    corrected_agreement,
    difference_of_confidences,
    mean_confidence,
    negative_entropy,
    some_rows,
    thresholded_confidence,
    transport_accuracy,
)


def two_classes(*confidence: float) -> np.ndarray:
    """Predictions of class 0 with these probabilities (below a half: of class 1)."""
    first = np.array(confidence)
    return np.stack([first, 1 - first], axis=1)


def test_mean_confidence_is_that_of_the_predicted_class():
    assert mean_confidence(two_classes(0.9, 0.3)) == pytest.approx(0.8)


def test_the_threshold_leaves_out_as_many_source_images_as_are_wrong():
    source, labels = two_classes(0.95, 0.9, 0.8, 0.7, 0.6), np.array([0, 0, 0, 1, 0])
    # One of five is wrong, so the threshold is above the lowest confidence 0.6: it is 0.7. Wherever the error stands.
    target = two_classes(0.99, 0.7, 0.69, 0.2)
    assert thresholded_confidence(source, labels, target) == pytest.approx(3 / 4)
    assert thresholded_confidence(source, labels, target, negative_entropy) == pytest.approx(3 / 4)


def test_on_the_source_itself_the_thresholded_confidence_is_the_accuracy():
    random = np.random.default_rng(0)
    source = random.dirichlet(np.ones(4), 200)
    labels = random.integers(0, 4, 200)
    right = (source.argmax(axis=1) == labels).mean()
    assert thresholded_confidence(source, labels, source) == pytest.approx(right)
    assert thresholded_confidence(source, labels, source, negative_entropy) == pytest.approx(right)
    assert difference_of_confidences(source, labels, source) == pytest.approx(right)


def test_a_model_that_is_always_wrong_on_the_source_is_expected_to_be_wrong():
    source = two_classes(0.9, 0.8)
    assert thresholded_confidence(source, np.array([1, 1]), two_classes(0.99, 0.95)) == 0


def test_the_entropy_threshold_differs_from_that_of_confidence_for_more_classes():
    spread, torn = np.array([[0.6, 0.2, 0.2]]), np.array([[0.58, 0.42, 0.0]])
    assert negative_entropy(torn)[0] > negative_entropy(spread)[0]  # though it is less confident
    expected = 0.6 * math.log(0.6) + 0.4 * math.log(0.2)
    assert negative_entropy(spread)[0] == pytest.approx(expected)
    labels = np.array([0])
    assert thresholded_confidence(spread, labels, torn) == 0
    assert thresholded_confidence(spread, labels, torn, negative_entropy) == 1


def test_accuracy_falls_with_confidence():
    source, labels = two_classes(0.9, 0.9, 0.9, 0.9), np.array([0, 0, 0, 1])
    assert difference_of_confidences(source, labels, two_classes(0.7, 0.7)) == pytest.approx(0.75 - 0.2)
    assert difference_of_confidences(source, np.ones(4, int), two_classes(0.5, 0.5)) == 0  # not below it


def test_transport_to_certain_predictions_with_the_right_shares_costs_nothing():
    target = np.eye(3)[[0, 0, 1, 2]]
    assert transport_accuracy(target, np.array([0.5, 0.25, 0.25])) == pytest.approx(1)
    # Half of the mass must move from the only predicted class to the other.
    assert transport_accuracy(np.eye(2)[[0, 0, 0, 0]], np.array([0.5, 0.5])) == pytest.approx(0.5)
    assert transport_accuracy(np.full((6, 3), 1 / 3), np.ones(3) / 3) == pytest.approx(1 / 3)


def test_transport_is_the_best_of_all_assignments():
    target = np.random.default_rng(1).dirichlet(np.ones(3), 6)
    shares = np.array([0.5, 1 / 3, 1 / 6])
    best = max(
        np.mean([target[image, label] for image, label in enumerate(labels)])
        for labels in set(itertools.permutations([0, 0, 0, 1, 1, 2]))
    )
    assert transport_accuracy(target, shares) == pytest.approx(best)
    assert np.bincount(assigned_classes(target, shares)).tolist() == [3, 2, 1]


def test_whole_numbers_have_the_right_shares():
    assert apportioned(np.array([0.5, 0.3, 0.2]), 10).tolist() == [5, 3, 2]
    assert apportioned(np.array([1.0, 1.0, 1.0]), 8).tolist() == [3, 3, 2]
    assert apportioned(np.array([0.0, 1.0]), 7).tolist() == [0, 7]


def test_some_rows_are_spread_evenly():
    rows = np.arange(10.0)[:, None]
    assert some_rows(rows, 3)[:, 0].tolist() == [0, 4, 9]
    assert some_rows(rows, 10) is rows


def test_agreement_is_the_share_of_equal_predictions():
    assert agreement(two_classes(0.9, 0.6, 0.2, 0.1), two_classes(0.6, 0.2, 0.4, 0.3)) == pytest.approx(3 / 4)


def test_neighbours_are_corrected_by_what_they_say_of_the_source():
    assert corrected_agreement(0.6, 0.8, 0.9) == pytest.approx(0.7)
    assert corrected_agreement(1.0, 0.5, 0.9) == 1
