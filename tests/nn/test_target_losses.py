"""The losses on target predictions, against plain loops in double precision."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tcm.nn.losses import (
    class_confusion,
    information_maximisation,
    pair_loss,
    reverse_prediction_error,
    self_training,
    tsallis_confusion,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradient(loss: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    at = at.clone().requires_grad_()
    return torch.autograd.grad(loss(at), at)[0]


def plain_tsallis(logits: Tensor, weights: Tensor | None = None) -> Tensor:
    """The form of the authors' code: a sum over images, divided by the number of classes. Weights are constants."""
    n, k, index = *logits.shape, 1.9
    p = (logits / 2.5).softmax(dim=1)
    if weights is None:
        raw = [1 + math.exp(sum(x * math.log(x) for x in row)) for row in p.tolist()]
        weights = torch.tensor([n * w / sum(raw) for w in raw], dtype=torch.float64)
    total = logits.new_zeros(())
    for i in range(n):
        each = k / n
        for c in range(k):
            s = sum(weights[j] * p[j, c] for j in range(n))
            each = each - weights[i] * p[i, c] ** index / s
        total = total + each
    return total / (index - 1) / k


def test_the_tsallis_confusion_is_a_plain_loop_and_so_is_its_gradient():
    logits = normal(5, 4)
    torch.testing.assert_close(tsallis_confusion(logits, 2.5, 1.9), plain_tsallis(logits))
    ours = gradient(lambda x: tsallis_confusion(x, 2.5, 1.9), logits)
    torch.testing.assert_close(ours, gradient(plain_tsallis, logits))  # whose weights have no gradient either
    assert ours.abs().max() > 1e-3


def test_the_tsallis_confusion_of_index_2_is_the_class_confusion():
    logits = normal(6, 3)
    torch.testing.assert_close(tsallis_confusion(logits, 2.5, 2.0), class_confusion(logits, 2.5))


def test_the_tsallis_confusion_is_finite_where_classes_have_no_probability():
    logits = (1000 * torch.eye(3))[:1].repeat(3, 1).requires_grad_()
    loss = tsallis_confusion(logits, 2.5, 1.9)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()
    assert tsallis_confusion(1000 * torch.eye(3), 2.5, 1.9) < 1e-6


def test_self_training_is_a_plain_loop():
    weak, strong = normal(8, 3, seed=1), normal(8, 3, seed=2)
    threshold, expected, kept = 0.7, 0.0, 0
    for row, other in zip(weak.softmax(dim=1).numpy(), strong.softmax(dim=1).numpy(), strict=True):
        if row.max() >= threshold:
            expected, kept = expected - math.log(other[row.argmax()]) / 8, kept + 1
    assert 0 < kept < 8
    assert self_training(weak, strong, threshold).item() == pytest.approx(expected)


def test_self_training_teaches_strong_views_alone():
    weak, strong = normal(8, 3, seed=1).requires_grad_(), normal(8, 3, seed=2).requires_grad_()
    self_training(weak, strong, 0.7).backward()
    assert weak.grad is None
    assert strong.grad is not None
    kept = weak.softmax(dim=1).amax(dim=1) >= 0.7
    assert torch.equal(strong.grad.any(dim=1), kept)
    labels = weak.argmax(dim=1)
    assert (strong.grad[kept].gather(1, labels[kept, None]) < 0).all()  # a step raises the logit of the label


def test_information_maximisation_by_hand():
    sure = 1000 * torch.eye(4).double()
    assert information_maximisation(sure).item() == pytest.approx(-math.log(4), abs=1e-4)
    assert information_maximisation(sure[:1].repeat(4, 1)).item() == pytest.approx(0, abs=1e-4)  # one class for all
    assert information_maximisation(torch.zeros(4, 4)).item() == pytest.approx(0, abs=1e-6)
    logits = normal(5, 3)
    p = logits.softmax(dim=1).numpy()
    mean = p.mean(axis=0)
    expected = -(p * np.log(p)).sum(axis=1).mean() + (mean * np.log(mean)).sum()
    assert information_maximisation(logits).item() == pytest.approx(expected)


def test_the_pair_loss_is_a_plain_loop():
    first, second = normal(5, 3, seed=1), normal(5, 3, seed=2)
    same = torch.eye(5).bool()
    same[0, 3] = same[3, 0] = True
    p, q = first.softmax(dim=1).numpy(), second.softmax(dim=1).numpy()
    expected = 0.0
    for i in range(5):
        for j in range(5):
            agreement = p[i] @ q[j]
            expected -= math.log((agreement if same[i, j] else 1 - agreement) + 1e-7) / 25
    assert pair_loss(first, second, same).item() == pytest.approx(expected)


def test_the_pair_loss_is_finite_for_certain_predictions():
    torch.manual_seed(0)
    for logits in (100 * torch.eye(3).repeat(2, 1), 30 * torch.randn(64, 9)):
        logits = logits.clone().requires_grad_()
        for same in (torch.ones(len(logits), len(logits)).bool(), torch.zeros(len(logits), len(logits)).bool()):
            loss = pair_loss(logits, logits, same)
            assert loss.isfinite()
            assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def plain_cycle(target: Tensor, pseudo: list[int], source: Tensor, labels: list[int], classes: int) -> Tensor:
    """Ridge regression by its weights: W = (X^T X + r I)^-1 X^T Y, which is the kernel form by another way."""
    x = torch.stack([row / row.norm() for row in target])
    y = torch.stack([torch.eye(classes).double()[c] - 1 / classes for c in pseudo])
    weights = torch.linalg.inv(x.T @ x + 0.001 * torch.eye(x.shape[1]).double()) @ x.T @ y
    errors = [
        (row / row.norm() @ weights - torch.eye(classes).double()[c] + 1 / classes).square().mean()
        for row, c in zip(source, labels, strict=True)
    ]
    return torch.stack(errors).mean()


def test_the_cycle_is_ridge_regression_and_trains_the_features_of_both_domains():
    target, source = normal(6, 4, seed=1), normal(5, 4, seed=2)
    pseudo, labels = [0, 2, 1, 1, 0, 0], [2, 1, 0, 0, 1]

    def ours(target: Tensor, source: Tensor) -> Tensor:
        return reverse_prediction_error(target, torch.tensor(pseudo), source, torch.tensor(labels), 3)

    torch.testing.assert_close(ours(target, source), plain_cycle(target, pseudo, source, labels, 3))
    torch.testing.assert_close(
        gradient(lambda x: ours(x, source), target),
        gradient(lambda x: plain_cycle(x, pseudo, source, labels, 3), target),
    )
    torch.testing.assert_close(
        gradient(lambda x: ours(target, x), source),
        gradient(lambda x: plain_cycle(target, pseudo, x, labels, 3), source),
    )


def test_the_cycle_is_small_for_right_pseudo_labels_and_large_for_wrong_ones():
    features = torch.eye(3).repeat(2, 1).double() + 0.01 * normal(6, 3)
    labels = torch.arange(3).repeat(2)
    right = reverse_prediction_error(features, labels, features, labels, 3)
    wrong = reverse_prediction_error(features, labels.roll(1), features, labels, 3)
    assert right < 0.01 < 0.3 < wrong


def test_the_cycle_is_finite_where_all_features_are_equal_and_in_half_precision():
    features = torch.ones(4, 5, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = reverse_prediction_error(features, torch.zeros(4).long(), features, torch.arange(4), 4)
    assert loss.dtype == torch.float32
    assert torch.autograd.grad(loss, features)[0].isfinite().all()


@pytest.mark.parametrize("loss", [lambda x: self_training(x, x, 0.0), information_maximisation])
def test_losses_are_in_single_precision(loss: Callable[[Tensor], Tensor]):
    assert loss(torch.zeros(4, 3, dtype=torch.bfloat16)).dtype == torch.float32
