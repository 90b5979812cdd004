import math
from itertools import pairwise
from typing import get_args

import pytest
import torch

from tcm.methods.tcm.head_diagnostics import head_diagnostics
from tcm.methods.tcm.proxy import (
    LinearHeads,
    ProxyHeads,
    ProxyWeights,
    Weighting,
    adjusted_logits,
    proxy_function,
    pseudo_inverse,
)


def random_heads(classes: int = 3, features: int = 5, latent: int = 2, proxy: int = 4) -> LinearHeads:
    torch.manual_seed(0)
    shapes = [(classes, latent), (classes, features), (classes,), (proxy, latent), (proxy, features), (proxy,)]
    return LinearHeads(*(torch.randn(*shape, dtype=torch.float64) for shape in shapes))


def test_the_heads_are_equation_6():
    heads = ProxyHeads(classes=3, features=5, latent=2)
    w1, w2, b1, w3, w4, b2 = heads.matrices()
    z, x = torch.randn(4, 2), torch.randn(4, 5)
    torch.testing.assert_close(heads.f_y(z, x), z @ w1.T + x @ w2.T + b1)
    torch.testing.assert_close(heads.f_xhat(z, x), z @ w3.T + x @ w4.T + b2)
    assert ProxyHeads(65, 2048, 100).to_proxy.weight.numel() == 4_399_104  # 4.399 M


def test_weights_start_as_the_release_starts_them():
    heads = ProxyHeads(classes=10, features=500, latent=100)
    assert abs(heads.to_proxy.weight.std().item() - math.sqrt(2 / 600)) < 5e-4
    assert not heads.to_proxy.bias.any()


def test_a_small_case_by_hand():
    # z = (x_hat - 3 x - 1) / 2, so h_y = 4 z + 5 x + 6 = 2 x_hat - x + 4.
    heads = LinearHeads(*(torch.tensor(v) for v in ([[4.0]], [[5.0]], [6.0], [[2.0]], [[3.0]], [1.0])))
    h_y = proxy_function(heads)
    assert [part.item() for part in h_y] == pytest.approx([2.0, -1.0, 4.0])
    assert adjusted_logits(h_y, torch.tensor([[7.0]]), torch.tensor([[9.0]])).item() == pytest.approx(15.0)


def test_all_counterfactuals_at_once_and_one_for_all():
    h_y = proxy_function(random_heads())
    x, x_hat = torch.randn(6, 5), torch.randn(3, 6, 4)
    logits = adjusted_logits(h_y, x, x_hat)
    assert logits.shape == (3, 6, 3)
    torch.testing.assert_close(logits, torch.stack([adjusted_logits(h_y, x, one) for one in x_hat]))
    one = x_hat[0, 0]
    torch.testing.assert_close(adjusted_logits(h_y, x, one), adjusted_logits(h_y, x, one.expand(6, 4)))


def test_constant_heads_pass_the_gradient_to_the_features_only():
    heads = ProxyHeads(classes=3, features=5, latent=2)
    for matrices, learn in ((heads.constants(), False), (heads.matrices(), True)):
        heads.zero_grad()
        x, x_hat = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
        adjusted_logits(proxy_function(matrices), x, x_hat).square().sum().backward()
        assert x.grad is not None
        assert x_hat.grad is not None
        assert x.grad.any()
        assert x_hat.grad.any()
        assert all((p.grad is not None) == learn for p in heads.parameters())


def test_the_gradient_through_the_solution_is_right():
    heads = [matrix.requires_grad_() for matrix in random_heads()]
    x, x_hat = torch.randn(2, 5, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)

    def logits(*matrices: torch.Tensor) -> torch.Tensor:
        return adjusted_logits(proxy_function(LinearHeads(*matrices), ridge=0.1), x, x_hat)

    assert torch.autograd.gradcheck(logits, heads)


def test_the_pseudo_inverse_is_torchs_and_the_ridge_is_a_ridge():
    w3 = torch.randn(2048, 100)
    inverse = pseudo_inverse(w3)
    assert inverse.dtype == torch.float64
    torch.testing.assert_close(inverse, torch.linalg.pinv(w3.double()), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(inverse @ w3.double(), torch.eye(100, dtype=torch.float64), rtol=0, atol=1e-12)
    gram = w3.double().T @ w3.double()
    expected = torch.linalg.solve(gram + 5 * torch.eye(100, dtype=torch.float64), w3.double().T)
    torch.testing.assert_close(pseudo_inverse(w3, ridge=5.0), expected)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_singular_w3_gives_a_finite_inverse_and_is_noticed(rank: int):
    torch.manual_seed(1)
    w3 = torch.randn(50, rank) @ torch.randn(rank, 4)  # in float32, so that rounding hides the zeros
    expected = torch.linalg.pinv(w3.double(), rtol=1e-5)
    torch.testing.assert_close(pseudo_inverse(w3), expected, rtol=1e-4, atol=1e-6)
    heads = random_heads(latent=4, proxy=50)._replace(w3=w3)
    assert head_diagnostics(heads).lost == 4 - rank


def test_a_z_wider_than_x_hat_has_lost_the_rest():
    heads = random_heads(latent=7, proxy=4)
    found = head_diagnostics(heads)
    assert (len(found.singular_values), found.lost, found.singular_values[-1]) == (7, 3, 0.0)
    torch.testing.assert_close(pseudo_inverse(heads.w3), torch.linalg.pinv(heads.w3))


def test_a_direction_is_lost_where_it_is_a_millionth_of_the_largest():
    values = torch.tensor([3.0, 2e-6 * 3, 0.5e-6 * 3], dtype=torch.float64)  # of W3
    generator = torch.Generator().manual_seed(0)
    turns = (torch.linalg.qr(torch.randn(n, 3, generator=generator, dtype=torch.float64)).Q for n in (8, 3))
    left, right = turns
    heads = random_heads(latent=3, proxy=8)._replace(w3=left * values @ right.T)
    kept = torch.tensor([1 / 3, 1 / 6e-6, 0.0], dtype=torch.float64)
    torch.testing.assert_close(pseudo_inverse(heads.w3), right * kept @ left.T, rtol=1e-3, atol=1.0)
    assert head_diagnostics(heads).lost == 1


@pytest.mark.parametrize("latent", [2, 4])  # eigenvalues of 2 x 2 come by another way, which always converges
def test_a_w3_that_diverged_reaches_the_loss(latent: int):
    for value in (math.nan, math.inf):
        heads = random_heads(latent=latent)
        heads.w3[:] = value
        h_y = proxy_function(heads)
        assert not adjusted_logits(h_y, torch.randn(2, 5), torch.randn(2, 4)).isfinite().all()


def test_bf16_around_it_changes_nothing_inside():
    heads = ProxyHeads(classes=3, features=64, latent=8)
    x, x_hat = torch.randn(4, 64), torch.randn(4, 64)
    expected = adjusted_logits(proxy_function(heads.constants()), x, x_hat)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h_y = proxy_function(heads.constants())
        assert torch.equal(adjusted_logits(h_y, x, x_hat), expected)
        assert adjusted_logits(h_y, x.bfloat16(), x_hat.bfloat16()).dtype == torch.float32


def test_moments_are_exact_in_whatever_batches():
    x_hat = torch.randn(4, 30, 16) * 3 + 100
    everything, in_parts = ProxyWeights(16), ProxyWeights(16)
    everything.update(x_hat)
    for first, end in pairwise([0, 1, 7, 30]):
        in_parts.update(x_hat[:, first:end])
    flat = x_hat.double().flatten(0, 1)
    for weights in (everything, in_parts):
        assert weights.count == 120
        torch.testing.assert_close(weights.mean, flat.mean(dim=0))
        torch.testing.assert_close(weights.variance, flat.var(dim=0, correction=0).mean())
    in_parts.reset()
    assert not any(buffer.any() for buffer in in_parts.buffers())
    assert set(in_parts.state_dict()) == {"count", "mean", "variance"}


def test_gaussian_weights_by_hand():
    weights = ProxyWeights(2)
    weights.mean.copy_(torch.tensor([1.0, 0.0]))
    weights.variance.fill_(4.0)
    x_hat = torch.tensor([[[1.0, 0.0]], [[3.0, 2.0]]])  # squared distances 0 and 8: densities 1 and 1/e
    expected = torch.tensor([[1.0], [1 / math.e]], dtype=torch.float64) / (1 + 1 / math.e)
    torch.testing.assert_close(weights(x_hat), expected)
    torch.testing.assert_close(weights.average(x_hat, "gaussian"), (expected.float()[..., None] * x_hat).sum(dim=0))


@pytest.mark.parametrize("weighting", get_args(Weighting))
def test_proxies_of_half_precision_are_averaged_in_single(weighting: Weighting):
    weights = ProxyWeights(64)
    weights.update(torch.randn(4, 30, 64))
    half = torch.randn(4, 5, 64).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(weights.average(half, weighting), weights.average(half.float(), weighting))


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_weights_are_finite_and_sum_to_one_in_2048_dimensions(scale: float):
    x_hat = torch.randn(4, 32, 2048) * scale
    weights = ProxyWeights(2048)
    torch.testing.assert_close(weights(x_hat), torch.full((4, 32), 0.25, dtype=torch.float64))  # nothing is known yet
    weights.update(x_hat)
    for probed in (x_hat, x_hat + 50 * scale):
        found = weights(probed)
        assert found.isfinite().all()
        torch.testing.assert_close(found.sum(dim=0), torch.ones(32, dtype=torch.float64))
    # An isotropic Gaussian in so many dimensions all but chooses one.
    assert weights(x_hat).max(dim=0).values.median() > 0.99


def test_three_weightings():
    x_hat = torch.randn(4, 6, 8, requires_grad=True)
    weights = ProxyWeights(8)
    weights.update(x_hat)
    torch.testing.assert_close(weights.average(x_hat, "uniform"), x_hat.mean(dim=0))
    torch.testing.assert_close(weights.average(x_hat, "mean"), x_hat.mean(dim=(0, 1)).expand(6, 8))
    by_density = weights.average(x_hat, "gaussian")
    by_density.sum().backward()
    assert x_hat.grad is not None
    torch.testing.assert_close(
        x_hat.grad, weights(x_hat).float()[..., None].expand(4, 6, 8)
    )  # the weights are constant


@pytest.mark.parametrize("weighting", ["gaussian", "uniform"])
def test_the_weighted_sum_of_logits_is_h_y_at_the_weighted_mean(weighting):
    h_y = proxy_function(random_heads())
    x, x_hat = torch.randn(6, 5).double(), torch.randn(3, 6, 4).double()
    weights = ProxyWeights(4)
    weights.update(x_hat)
    each = weights(x_hat) if weighting == "gaussian" else torch.full((3, 6), 1 / 3, dtype=torch.float64)
    summed = (each[..., None] * adjusted_logits(h_y, x, x_hat)).sum(dim=0)
    torch.testing.assert_close(summed, adjusted_logits(h_y, x, weights.average(x_hat, weighting)))
