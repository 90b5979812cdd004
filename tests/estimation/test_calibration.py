import numpy as np
import pytest

from tcm.estimation.calibration import (
    fitted_temperature,
    pseudo_labelled_temperature,
    reliability,
    with_temperature,
)


def drawn(temperature: float, count: int = 20_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Calibrated probabilities, labels drawn from them, and what a model with that temperature too low says."""
    random = np.random.default_rng(0)
    logits = random.normal(0, 1.5, (count, 4))
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (random.random((count, 1)) > true.cumsum(axis=1)).sum(axis=1)
    sharp = np.exp(logits * temperature)
    return true, labels, sharp / sharp.sum(axis=1, keepdims=True)


def test_a_temperature_divides_the_logits():
    logits = np.array([[2.0, 1.0, -3.0]])
    softmax = np.exp(logits) / np.exp(logits).sum()
    halved = np.exp(logits / 2) / np.exp(logits / 2).sum()
    np.testing.assert_allclose(with_temperature(softmax, 2.0), halved)
    np.testing.assert_allclose(with_temperature(softmax, 1.0), softmax)


def test_a_probability_of_zero_stays_finite():
    found = with_temperature(np.array([[1.0, 0.0]], dtype=np.float32), 3.0)
    assert np.isfinite(found).all()
    assert found.sum() == pytest.approx(1)


def test_the_temperature_of_an_overconfident_model_is_found():
    true, labels, sharp = drawn(3.0)
    assert fitted_temperature(sharp, labels) == pytest.approx(3.0, rel=0.05)
    assert fitted_temperature(true, labels) == pytest.approx(1.0, rel=0.05)
    np.testing.assert_allclose(with_temperature(sharp, 3.0), true, rtol=1e-6)


def test_of_a_calibrated_model_confidence_and_accuracy_are_equal():
    true, labels, sharp = drawn(3.0)
    calibrated, overconfident = reliability(true, labels), reliability(sharp, labels)
    assert calibrated
    assert overconfident
    assert calibrated.expected_calibration_error < 0.02
    assert overconfident.expected_calibration_error > 0.15
    many = calibrated.images > 500
    np.testing.assert_allclose(calibrated.confidence[many], calibrated.accuracy[many], atol=0.04)


def test_the_calibration_error_is_weighted_by_images():
    probabilities = np.array([[0.9, 0.1]] * 3 + [[0.6, 0.4]])
    found = reliability(probabilities, np.array([0, 0, 1, 1]), bins=10)
    assert found
    assert found.images.tolist() == [1, 3]
    np.testing.assert_allclose(found.confidence, [0.6, 0.9])
    np.testing.assert_allclose(found.accuracy, [0, 2 / 3])
    assert found.expected_calibration_error == pytest.approx((0.6 + 3 * (0.9 - 2 / 3)) / 4)


def test_images_without_a_label_do_not_count():
    probabilities = np.array([[1.0, 0.0], [0.2, 0.8]])
    found = reliability(probabilities, np.array([0, -1]))
    assert found
    assert found.images.tolist() == [1]
    assert reliability(probabilities, np.array([-1, -1])) is None


def test_pseudo_labels_contradict_a_class_that_is_predicted_too_often():
    # All images are called the first class with 0.9; half of them must be of the second by the source's shares.
    target = np.tile([0.9, 0.1], (100, 1))
    found = pseudo_labelled_temperature(target, np.array([0.5, 0.5]))
    assert with_temperature(target, found).max(axis=1).mean() == pytest.approx(0.5, abs=0.05)
