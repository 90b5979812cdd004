"""Entropic optimal transport between two batches, by its dual problems (Genevay et al., 2016).

Each point of a batch has the same mass. The optimal plan pi minimises sum pi C + epsilon KL(pi | uniform) among the
plans with these masses, where C [source, target] is the cost between points. Both functions below are at most this
minimum minus epsilon, for any potentials, and reach it for the best ones.
"""

import math

import torch
from torch import Tensor, nn

from tcm.nn.losses import in_single


def relative_distances(source: Tensor, target: Tensor) -> Tensor:
    """Euclidean distances [source, target] between features [batch, d], divided by their mean.

    So epsilon has the same meaning for features of any width and scale, and a smaller scale is not a smaller distance.
    """
    found = torch.cdist(in_single(source), in_single(target), compute_mode="donot_use_mm_for_euclid_dist")
    return found / found.mean().clamp_min(torch.finfo(found.dtype).tiny)


def semi_dual(target_potential: Tensor, cost: Tensor, epsilon: float) -> Tensor:
    """The semi-dual problem for a potential g [target]: the mean of g and of its soft minimum, minus epsilon.

    The soft minimum of g at a source point i is -epsilon log mean_j exp((g_j - C_ij) / epsilon), the best potential of
    the source for this g.
    """
    soft_minimum = ((target_potential - cost) / epsilon).logsumexp(dim=1) - math.log(cost.shape[1])
    return target_potential.mean() - epsilon * soft_minimum.mean() - epsilon


def dual(source_potential: Tensor, target_potential: Tensor, cost: Tensor, epsilon: float) -> Tensor:
    """The dual problem for potentials u [source] and v [target].

    mean u + mean v - epsilon mean_ij exp((u_i + v_j - C_ij) / epsilon).
    """
    excess = source_potential[:, None] + target_potential - cost
    return source_potential.mean() + target_potential.mean() - epsilon * (excess / epsilon).exp().mean()


class PairWeights(nn.Module):
    """ETD's attention: weights of all pairs of a source and a target image, by their logits; they have mean 1."""

    def __init__(self, classes: int):
        super().__init__()
        self.query, self.key = (_initialised(nn.Linear(classes, classes)) for _ in range(2))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Weights [source, target] of logits [source, classes] and [target, classes], in single precision."""
        with torch.autocast(source.device.type, enabled=False):
            weights = torch.sigmoid(self.query(source) @ self.key(target).T)
        return weights / weights.mean()


def potential(features: int, hidden: int) -> nn.Sequential:
    """The network of a Kantorovich potential, features -> [batch, 1]. It starts at 0, where no exponential is large.

    There is no bias in the end: a constant changes nothing in the semi-dual problem.
    """
    last = nn.Linear(hidden, 1, bias=False)
    nn.init.zeros_(last.weight)
    return nn.Sequential(_initialised(nn.Linear(features, hidden)), nn.LeakyReLU(0.2), last)


def _initialised(linear: nn.Linear) -> nn.Linear:
    """The layer with the initial weights of ETD's authors."""
    nn.init.normal_(linear.weight, std=0.05)
    nn.init.zeros_(linear.bias)
    return linear
