import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.nn.uncertainty import (
    UncertainClassifier,
    bayesian_cross_entropy,
    certainty_attention,
    predictive_uncertainty,
)

LOGITS = torch.tensor([[1.0, -0.5, 0.2], [0.3, 0.1, -2.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 2])


def test_an_uncertain_classifier_has_logits_and_one_positive_variance_for_each_image():
    torch.manual_seed(0)
    network = UncertainClassifier(6, (8, 5), 3).eval()
    logits, variance = network(torch.randn(4, 6))
    assert (logits.shape, variance.shape) == ((4, 3), (4,))
    assert (variance > 0).all()
    kinds = [type(layer).__name__ for layer in network.hidden]
    assert kinds == ["Linear", "ReLU", "Dropout"] * 2
    assert network(torch.zeros(1, 6))[1].item() == pytest.approx(math.log(2))  # biases start at 0


def test_the_bayesian_cross_entropy_is_its_definition():
    variance = torch.tensor([0.4, 1.3], dtype=torch.float64)
    torch.manual_seed(5)
    found = bayesian_cross_entropy(LOGITS, LABELS, variance, draws=7)
    torch.manual_seed(5)
    noise = torch.randn(7, 2, 3, dtype=torch.float64)

    def cross_entropy(logits: Tensor) -> float:
        return sum(-math.log(row.exp()[label] / row.exp().sum()) for row, label in zip(logits, LABELS, strict=True)) / 2

    u, total = cross_entropy(LOGITS), 0.0
    for t in range(7):
        noisy = torch.stack([LOGITS[i] + math.sqrt(variance[i]) * noise[t, i] for i in range(2)])
        difference = u - cross_entropy(noisy)
        total += difference if difference > 0 else math.exp(difference) - 1
    penalty = sum(math.exp(v) - 1 for v in variance) / 2
    assert found.item() == pytest.approx(u + u * total / 7 + penalty, rel=1e-9)


def test_without_variance_it_is_the_cross_entropy_and_has_a_finite_gradient():
    variance = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    found = bayesian_cross_entropy(LOGITS, LABELS, variance, draws=5)
    torch.testing.assert_close(found, F.cross_entropy(LOGITS, LABELS), rtol=0, atol=1e-5)
    found.backward()
    assert variance.grad is not None
    torch.testing.assert_close(variance.grad, torch.full_like(variance, 0.5))  # of the mean of exp(v)


def test_the_penalty_of_a_large_variance_is_a_straight_line():
    zero, one = torch.zeros(1, 2), torch.tensor([0])

    def slope(v: float) -> float:
        variance = torch.tensor([v], requires_grad=True)
        torch.manual_seed(0)
        loss = bayesian_cross_entropy(1e4 * torch.tensor([[1.0, 0.0]]) + zero, one, variance, draws=3)  # u = 0
        (gradient,) = torch.autograd.grad(loss, [variance])
        return gradient.item()

    assert [slope(1.0), slope(4.9)] == pytest.approx([math.exp(1), math.exp(4.9)], rel=1e-4)
    assert [slope(5.1), slope(1000.0)] == pytest.approx([math.exp(5)] * 2, rel=1e-4)


def test_noise_raises_the_loss_of_wrong_predictions_as_in_the_authors_code():
    """With the usual sign of ELU it would lower the loss, so that wrong predictions get a large variance."""

    def slope(label: int) -> float:
        variance = torch.full((1,), 0.5, requires_grad=True)
        torch.manual_seed(0)
        loss = bayesian_cross_entropy(torch.tensor([[3.0, -3.0]]), torch.tensor([label]), variance, draws=4000)
        return torch.autograd.grad(loss, [variance])[0].item() - math.exp(0.5)  # without the penalty

    assert slope(1) > 0.1
    assert abs(slope(0)) < 0.01


def test_the_predictive_uncertainty_is_the_entropy_of_the_mean_and_the_mean_variance():
    torch.manual_seed(0)
    network = UncertainClassifier(4, (6,), 2).double().train()
    features = torch.randn(3, 4, dtype=torch.float64)
    torch.manual_seed(7)
    found = predictive_uncertainty(network, features, passes=5)
    torch.manual_seed(7)
    logits, variance = network(torch.cat([features] * 5))
    for i in range(3):
        p = torch.stack([logits[t * 3 + i].softmax(dim=0) for t in range(5)]).mean(dim=0)
        expected = -(p * torch.log(p)).sum() + sum(variance[t * 3 + i] for t in range(5)) / 5
        torch.testing.assert_close(found[i], expected)


def test_the_attention_is_a_share_of_the_certainty_over_helpful_features():
    features = torch.tensor([[1.0, 2.0, -1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], requires_grad=True)
    # U rises with the first feature and falls with the others; in the second image it rises with all of them.
    slopes = torch.tensor([[0.1, -0.2, -0.3], [0.1, 0.1, 0.1], [-1.0, 0.0, 0.0]])
    uncertainty = (features * slopes).sum(dim=1) + torch.tensor([0.6, 0.2, 2.5])
    assert uncertainty.tolist() == pytest.approx([0.6, 0.5, 1.5])
    found = certainty_attention(features, uncertainty)
    # Image 1: f g = -f U slope is positive only for the second feature. Image 3: U > 1, no certainty at all.
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.4, 0.0], [0.5 / 3] * 3, [0.0] * 3]))
    assert not found.requires_grad


def test_the_attention_of_two_helpful_features_is_a_softmax():
    features = torch.tensor([[1.0, 3.0, 2.0]], requires_grad=True)
    uncertainty = 0.9 - (features * torch.tensor([[0.1, 0.2, -0.2]])).sum(dim=1)
    u = uncertainty.item()
    assert u == pytest.approx(0.6)
    first, second = math.exp(u * 0.1 * 1), math.exp(u * 0.2 * 3)
    expected = (1 - u) * torch.tensor([[first, second, 0.0]]) / (first + second)
    torch.testing.assert_close(certainty_attention(features, uncertainty), expected)
