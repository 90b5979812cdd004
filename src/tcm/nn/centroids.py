"""Moving centroids of the classes in a domain (MSTN: Xie et al., 2018). A row of zeros is a class not seen so far."""

import torch
from torch import Tensor

from tcm.nn.losses import in_single


def moving_centroids(former: Tensor, features: Tensor, labels: Tensor, momentum: float) -> Tensor:
    """The centroids [classes, d] after a batch of features [batch, d] with one-hot labels [batch, classes].

    momentum x former + (1 - momentum) x mean of the class in the batch, Algorithm 1 of Xie et al. (2018). A class that
    is not in the batch keeps its centroid, and the first mean of a class is its first centroid. A row of zeros in
    `labels` is an image that does not count. The gradient goes through the means.
    """
    with torch.autocast(features.device.type, enabled=False):
        counts = labels.sum(dim=0)[:, None]
        means = labels.T @ in_single(features) / counts.clamp_min(1)
    moved = torch.where(seen(former)[:, None], momentum * former + (1 - momentum) * means, means)
    return torch.where(counts > 0, moved, former)


def centroid_distance(source: Tensor, target: Tensor) -> Tensor:
    """The mean over classes and features of the squared difference of centroids [classes, d].

    The semantic loss of Xie et al. (2018), with the means of their code in place of the paper's sums. Classes that were
    not seen in both domains count as equal.
    """
    both = seen(source) & seen(target)
    return ((source - target).square().mean(dim=1) * both).mean()


def seen(centroids: Tensor) -> Tensor:
    """Which classes have a centroid: bool [classes]."""
    return centroids.detach().any(dim=1)
