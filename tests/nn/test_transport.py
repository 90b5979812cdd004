import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tcm.nn.transport import dual, relative_distances, semi_dual

EPSILON = 0.3


def random_cost(source: int = 4, target: int = 6) -> Tensor:
    return torch.rand(source, target, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def sinkhorn(cost: Tensor) -> tuple[float, Tensor]:
    """The minimum of sum pi C + epsilon KL(pi | uniform) and the target's potential, by Sinkhorn's algorithm."""
    c = cost.numpy()
    n, m = c.shape
    u, v = np.zeros(n), np.zeros(m)
    for _ in range(2000):
        u = -EPSILON * np.log(np.exp((v - c) / EPSILON).mean(axis=1))
        v = -EPSILON * np.log(np.exp((u[:, None] - c) / EPSILON).mean(axis=0))
    plan = np.exp((u[:, None] + v - c) / EPSILON) / (n * m)
    assert np.allclose(plan.sum(axis=1), 1 / n)
    assert np.allclose(plan.sum(axis=0), 1 / m)
    return float((plan * c).sum() + EPSILON * (plan * np.log(plan * n * m)).sum()), torch.from_numpy(v)


def soft_minimum(potential: Tensor, cost: Tensor) -> Tensor:
    return torch.tensor(
        [-EPSILON * math.log(sum(math.exp((g - c) / EPSILON) for g, c in zip(potential, row, strict=True)) / len(row))
         for row in cost],
        dtype=torch.float64,
    )  # fmt: skip


def test_the_best_potentials_give_the_minimum_of_the_transport_problem():
    cost = random_cost()
    least, best = sinkhorn(cost)
    assert semi_dual(best, cost, EPSILON).item() == pytest.approx(least - EPSILON)
    assert dual(soft_minimum(best, cost), best, cost, EPSILON).item() == pytest.approx(least - EPSILON)


def test_other_potentials_give_less_and_the_dual_less_than_the_semi_dual():
    cost = random_cost()
    least, _ = sinkhorn(cost)
    for seed in range(5):
        u, v = (torch.randn(n, generator=torch.Generator().manual_seed(seed)).double() for n in cost.shape)
        assert dual(u, v, cost, EPSILON) < semi_dual(v, cost, EPSILON) < least - EPSILON
        expected = v.mean() + soft_minimum(v, cost).mean() - EPSILON
        torch.testing.assert_close(semi_dual(v, cost, EPSILON), expected)
        torch.testing.assert_close(dual(soft_minimum(v, cost), v, cost, EPSILON), expected)


def test_a_constant_more_in_the_potential_changes_nothing_in_the_semi_dual():
    cost, potential = random_cost(), torch.randn(6).double()
    torch.testing.assert_close(semi_dual(potential + 7, cost, EPSILON), semi_dual(potential, cost, EPSILON))


def test_distances_are_relative_to_their_mean_and_finite_for_equal_points():
    source, target = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.0], [6.0, 8.0]])
    found = relative_distances(source.requires_grad_(), target)
    torch.testing.assert_close(found, torch.tensor([[0.0, 10.0], [5.0, 5.0]]) / 5)
    (gradient,) = torch.autograd.grad(found.sum(), source)
    assert gradient.isfinite().all()
    torch.testing.assert_close(gradient, torch.zeros(2, 2), atol=1e-6, rtol=0)  # their sum is always 4
    torch.testing.assert_close(relative_distances(100 * source, 100 * target), found)
    assert not relative_distances(target, target[:1].expand(2, 2))[0].any()
    assert relative_distances(target[:1], target[:1]).item() == 0
