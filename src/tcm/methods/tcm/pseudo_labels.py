"""Pseudo-labels: classes of target images that the network itself is confident about."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.nn.losses import in_single


class PseudoLabels(NamedTuple):
    """The predicted classes of a batch of target images, and which of them training uses."""

    classes: Tensor  # [batch]
    kept: Tensor  # [batch], 1 where the confidence reaches the threshold, else 0

    def loss(self, logits: Tensor) -> Tensor:
        """The cross-entropy of logits [batch, classes] with the kept labels, as a mean over the whole batch."""
        return (self.kept * F.cross_entropy(in_single(logits), self.classes, reduction="none")).mean()


class PseudoLabeller(nn.Module):
    """Labels target images by predictions that are divided by how often the network predicts each class.

    Without the division, classes that the network prefers would get ever more labels.
    """

    prior: Tensor  # [classes], the running mean of the predictions

    def __init__(self, classes: int, threshold: float, momentum: float):
        super().__init__()
        self.threshold, self.momentum = threshold, momentum
        self.register_buffer("prior", torch.full((classes,), 1 / classes))

    @torch.no_grad()
    def forward(self, probabilities: Tensor, former: Tensor | None = None, share: float = 0.0) -> PseudoLabels:
        """Labels of a batch from probabilities [batch, classes], which also update the prior.

        `former` are the probabilities that a former round gave the same images, and `share` is their weight.
        """
        self.prior.lerp_(probabilities.mean(dim=0), 1 - self.momentum)
        balanced = divided_by(self.prior, probabilities)
        if former is not None:
            balanced = torch.lerp(balanced, former, share)
        confidence, classes = balanced.max(dim=1)
        return PseudoLabels(classes, (confidence >= self.threshold).float())


def divided_by(prior: Tensor, probabilities: Tensor) -> Tensor:
    """Probabilities [batch, classes] divided by the prior of each class, and normalised again."""
    # A class that is never predicted has a prior near 0: its quotient must stay finite.
    ratio = probabilities / prior.clamp_min(torch.finfo(prior.dtype).tiny ** 0.5)
    return ratio / ratio.sum(dim=1, keepdim=True)
