import math

import numpy as np
import pytest
import torch

from tcm.nn.heads import reverse_gradient
from tcm.nn.losses import (
    category_confusion,
    class_balance,
    classifier_discrepancy,
    critic_error,
    domain_confusion,
    domain_of_classes,
    margin_disparity,
    multi_kernel_mmd,
    proxy_loss,
    vae_loss,
)


def test_domain_confusion_is_log_two_when_the_discriminator_knows_nothing():
    assert math.isclose(domain_confusion(torch.zeros(3, 1), torch.zeros(5, 1)).item(), math.log(2), rel_tol=1e-6)


def test_domain_confusion_falls_when_source_scores_high_and_target_low():
    right = domain_confusion(torch.full((3, 1), 4.0), torch.full((5, 1), -4.0))
    wrong = domain_confusion(torch.full((3, 1), -4.0), torch.full((5, 1), 4.0))
    assert right < 0.02 < 3 < wrong


def test_the_vae_loss_is_half_the_squared_error_and_the_divergence():
    zeros = torch.zeros(2, 3)
    assert vae_loss(zeros, zeros, zeros, zeros) == 0
    assert vae_loss(torch.full((2, 5), 2.0), torch.zeros(2, 5), zeros, zeros) == 10  # 5 features x 2^2 / 2
    mean, log_variance = torch.randn(4, 3), torch.randn(4, 3)
    q = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    p = torch.distributions.Normal(torch.zeros(4, 3), torch.ones(4, 3))
    expected = torch.distributions.kl_divergence(q, p).sum(dim=1).mean()
    torch.testing.assert_close(vae_loss(torch.zeros(4, 5), torch.zeros(4, 5), mean, log_variance), expected)


def test_the_proxy_loss_is_equation_10_with_its_sign_turned():
    x_s, x_hat_s, x_t, x_hat_t = (torch.randn(*shape, 1).double() for shape in ((6,), (3, 6), (5,), (3, 5)))
    by_image = torch.sigmoid(x_s).log().mean() + torch.sigmoid(x_t).log().mean()
    for logits in (x_hat_s, x_hat_t):
        by_image = by_image + sum((1 - torch.sigmoid(one)).log().mean() for one in logits) / 3
    torch.testing.assert_close(proxy_loss(x_s, x_hat_s, x_t, x_hat_t), -by_image)
    nothing = torch.zeros(2, 1)
    assert math.isclose(proxy_loss(nothing, nothing, nothing, nothing).item(), 4 * math.log(2), rel_tol=1e-6)


def test_behind_the_reversal_the_features_climb_what_the_discriminators_descend():
    d_s, d_t = torch.tensor(1.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    made = torch.full((2, 3, 1), 2.0, requires_grad=True)
    reversed_made = reverse_gradient(made, 1.0)
    real = torch.ones(3, 1)
    proxy_loss(d_s * real, d_t * reversed_made, d_t * real, d_s * reversed_made).backward()
    assert made.grad is not None
    assert (made.grad < 0).all()  # a descent step raises the scores of the counterfactuals: they look more real
    assert d_t.grad is not None
    assert d_t.grad > 0  # while the discriminator lowers them


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def logits_of(*probabilities: list[float]) -> torch.Tensor:
    """Logits, none of which is normalised, of rows of class probabilities."""
    return torch.tensor(probabilities, dtype=torch.float64).log() + 3


def test_the_mmd_of_a_sample_with_itself_is_zero():
    features = normal(6, 3)
    assert multi_kernel_mmd(features, features) == 0
    assert multi_kernel_mmd(torch.ones(4, 3), torch.ones(4, 3)) == 0  # no spread at all


def test_the_mmd_of_two_and_two_by_hand():
    # Of 0, 2, 1, 1 the mean squared distance is 1. Squared distances: 4 and 0 within the domains, 1 across.
    source, target = torch.tensor([[0.0], [2.0]]).double(), torch.tensor([[1.0], [1.0]]).double()

    def kernel(squared: float) -> float:
        return sum(math.exp(-squared / (2 * share)) for share in (0.125, 0.25, 0.5, 1, 2))

    assert multi_kernel_mmd(source, target).item() == pytest.approx(kernel(4) + 5 - 2 * kernel(1), rel=1e-12)


def test_the_mmd_is_that_of_a_plain_loop():
    source, target = normal(7, 4, seed=1), 0.5 + normal(7, 4, seed=2)
    x, y = source.numpy(), target.numpy()
    everything = [*x, *y]
    mean = np.mean([[np.sum((a - b) ** 2) for a in everything] for b in everything])

    def kernel(a, b) -> float:
        return sum(math.exp(-np.sum((a - b) ** 2) / (2 * 2**power * mean)) for power in range(-3, 2))

    expected = 0.0
    for i in range(7):
        j = (i + 1) % 7
        expected += (kernel(x[i], x[j]) + kernel(y[i], y[j]) - kernel(x[i], y[j]) - kernel(x[j], y[i])) / 7
    assert multi_kernel_mmd(source, target).item() == pytest.approx(expected, rel=1e-10)


def test_the_mmd_pulls_the_domains_together_and_does_not_blow_them_up():
    source, target = normal(64, 3, seed=1).requires_grad_(), (2 + normal(64, 3, seed=2)).requires_grad_()
    to_source, to_target = torch.autograd.grad(multi_kernel_mmd(source, target), [source, target])
    assert (to_source.mean(dim=0) < 0).all()  # a descent step raises the lower domain
    assert (to_target.mean(dim=0) > 0).all()
    # The bandwidth is constant: were it not, a common factor would change nothing and this sum would be 0.
    assert ((source * to_source).sum() + (target * to_target).sum()).abs() > 0.01


def test_the_discrepancy_of_two_classifiers_by_hand():
    first, second = logits_of([0.25, 0.75], [0.5, 0.5]), logits_of([0.5, 0.5], [0.5, 0.5])
    assert classifier_discrepancy(first, first + 5) == pytest.approx(0, abs=1e-15)
    assert classifier_discrepancy(first, second).item() == pytest.approx(0.125)  # 0.25 on one of two images
    sure = torch.eye(4, dtype=torch.float64) * 1000
    assert classifier_discrepancy(sure, sure.roll(1, dims=1)) == 2 / 4  # wholly at odds: 2 / classes


def test_the_discrepancy_is_that_of_a_plain_loop():
    first, second = normal(5, 3, seed=1), normal(5, 3, seed=2)
    p, q = (np.exp(part.numpy()) / np.exp(part.numpy()).sum(axis=1, keepdims=True) for part in (first, second))
    expected = sum(abs(p[i, k] - q[i, k]) for i in range(5) for k in range(3)) / (5 * 3)
    assert classifier_discrepancy(first, second).item() == pytest.approx(expected, rel=1e-12)


def test_class_balance_by_hand():
    # What counts is the mean prediction: (1/4, 3/4), (3/4, 1/4) is as balanced as (1/2, 1/2).
    balanced = class_balance(logits_of([0.25, 0.75], [0.75, 0.25]))
    assert balanced.item() == pytest.approx(math.log(2), abs=1e-5)
    leaning = class_balance(logits_of([0.1, 0.9], [0.3, 0.7]))
    assert leaning.item() == pytest.approx(-(math.log(0.2 + 1e-6) + math.log(0.8 + 1e-6)) / 2, rel=1e-12)
    assert class_balance(torch.tensor([[1000.0, 0.0]])).item() == pytest.approx(-math.log(1e-6) / 2, rel=1e-4)


def test_the_margin_disparity_by_hand():
    # The classifier decides for class 1 and class 0; the rival gives them 0.2 on the source and 0.7 on the target.
    source, target = logits_of([0.3, 0.7]), logits_of([0.9, 0.1])
    source_rival, target_rival = logits_of([0.8, 0.2]), logits_of([0.7, 0.3])
    found = margin_disparity(source, target, source_rival, target_rival, margin=4.0)
    assert found.item() == pytest.approx(-4 * math.log(0.2) - math.log(1 - 0.7), rel=1e-12)
    unmoved = margin_disparity(source, target, source_rival, target_rival, margin=0.0)
    assert unmoved.item() == pytest.approx(-math.log(0.3), rel=1e-12)


def test_the_margin_disparity_is_that_of_a_plain_loop():
    source, target, source_rival, target_rival = (normal(*shape, seed=shape[0]) for shape in [(6, 3), (5, 3)] * 2)
    source_rival, target_rival = source_rival.flip(0), target_rival.flip(0)

    def probability(logits: torch.Tensor, of: int) -> float:
        return math.exp(logits[of]) / sum(math.exp(logit) for logit in logits.tolist())

    agree = -sum(math.log(probability(g, int(f.argmax()))) for f, g in zip(source, source_rival, strict=True)) / 6
    differ = -sum(math.log(1 - probability(g, int(f.argmax()))) for f, g in zip(target, target_rival, strict=True)) / 5
    found = margin_disparity(source, target, source_rival, target_rival, margin=2.5)
    assert found.item() == pytest.approx(2.5 * agree + differ, rel=1e-12)


def test_a_rival_that_is_wholly_sure_does_no_harm():
    logits = torch.tensor([[200.0, 0.0, 0.0]]).requires_grad_()
    loss = margin_disparity(logits.detach(), logits.detach(), logits, logits, margin=1.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(200 - math.log(2), rel=1e-6)
    torch.testing.assert_close(gradient, torch.tensor([[1.0, -0.5, -0.5]]))


def test_the_decisions_of_the_classifier_are_constants():
    logits, rival = normal(4, 3).requires_grad_(), normal(4, 3, seed=1).requires_grad_()
    loss = margin_disparity(logits, logits, rival, rival, margin=4.0)
    unused, used = torch.autograd.grad(loss, [logits, rival], allow_unused=True)
    assert unused is None
    assert used is not None


def test_losses_of_half_precision_are_computed_in_single():
    half = normal(4, 3).bfloat16()
    other = normal(4, 3, seed=1).bfloat16()
    single, other_single = half.float(), other.float()
    assert multi_kernel_mmd(half, other) == multi_kernel_mmd(single, other_single)
    assert classifier_discrepancy(half, other) == classifier_discrepancy(single, other_single)
    assert class_balance(half) == class_balance(single)
    expected = margin_disparity(single, single, other_single, other_single, 4.0)
    assert margin_disparity(half, half, other, other, 4.0) == expected
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert critic_error(half, 1.0) == critic_error(single, 1.0)


def test_the_domain_of_classes_is_the_logit_of_the_summed_probabilities():
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).double()
    source = logits.softmax(dim=1)[:, :3].sum(dim=1)
    torch.testing.assert_close(domain_of_classes(logits).sigmoid(), source)
    assert domain_of_classes(torch.tensor([[2000.0, 0.0, 0.0, 0.0]])).item() == pytest.approx(2000 - math.log(2))


def test_category_confusion_is_smallest_where_both_parts_get_one_half():
    labels = torch.tensor([1])
    halves = torch.tensor([[-50.0, 0.0, -50.0, 0.0]])
    assert category_confusion(halves, labels).item() == pytest.approx(math.log(2))
    one = torch.tensor([[-50.0, 3.0, -50.0, 0.0]])
    assert category_confusion(one, labels).item() == pytest.approx(math.log1p(math.exp(3)) - 1.5)
