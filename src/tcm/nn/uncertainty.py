"""Classifiers that say how uncertain they are, as CADA has two: one of classes, one of domains."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.nn.losses import entropy

LARGE = 5.0  # variance from which its penalty is linear


class UncertainClassifier(nn.Module):
    """Hidden layers with dropout, and on top of them the logits and their variance, one number for each image."""

    def __init__(self, features: int, hidden: Sequence[int], classes: int):
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, width in zip((features, *hidden), hidden, strict=False):
            layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(0.5)]
        self.hidden = nn.Sequential(*layers)
        self.logits, self.variance = nn.Linear(hidden[-1], classes), nn.Linear(hidden[-1], 1)
        self.apply(initialise_xavier)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The logits [batch, classes] and their variance [batch] of features [batch, features]."""
        hidden = self.hidden(features)
        return self.logits(hidden), F.softplus(self.variance(hidden)).squeeze(1)


def initialise_xavier(module: nn.Module) -> None:
    """Weights of a linear layer from the uniform distribution of Glorot and Bengio (2010), biases 0."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def bayesian_cross_entropy(logits: Tensor, labels: Tensor, variance: Tensor, draws: int) -> Tensor:
    """u + u mean_t ELU(u - u_t) + mean(exp(v) - 1): it teaches the variance v [batch] of logits [batch, classes].

    The criterion of the code of CADA (Kurmi et al., 2019). u is the mean cross-entropy of the batch, u_t that of the
    logits with normal noise of variance v, in `draws` draws. The sign of ELU is that of the code; in the usual form of
    this loss it is negative. A gradient reversal layer raises v, so from v = 5 a straight line replaces exp(v).
    """
    plain = F.cross_entropy(logits, labels)
    # The square root has no finite gradient at 0.
    noise = torch.randn(draws, *logits.shape, device=logits.device, dtype=logits.dtype)
    noisy = logits + variance.clamp_min(1e-12).sqrt()[:, None] * noise
    repeated = labels.expand(draws, -1)
    distorted = F.cross_entropy(noisy.flatten(0, 1), repeated.flatten(), reduction="none").view(draws, -1).mean(dim=1)
    penalty = variance.clamp_max(LARGE).exp() * (1 + (variance - LARGE).clamp_min(0)) - 1
    return plain + plain * F.elu(plain - distorted).mean() + penalty.mean()


def predictive_uncertainty(classifier: UncertainClassifier, features: Tensor, passes: int) -> Tensor:
    """The entropy of the mean probabilities, plus the mean variance, over passes with different dropout: [batch].

    It is the sum of what the classifier does not know about its weights and what it says about the features.
    """
    logits, variance = classifier(features.repeat(passes, 1))
    probabilities = logits.softmax(dim=1).unflatten(0, (passes, -1)).mean(dim=0)
    return entropy(probabilities) + variance.view(passes, -1).mean(dim=0)


def certainty_attention(features: Tensor, uncertainty: Tensor) -> Tensor:
    """The weight of each feature for a certain prediction, from 0 to 1: [batch, features], without gradient.

    Of the code of CADA (Kurmi et al., 2019). `features` must be a leaf of the graph of `uncertainty` U [batch]. With g
    the gradient of -U^2 / 2, the weights are max(0, 1 - U) times a softmax over the features in which f g is positive,
    or over all of them if there are none.
    """
    (gradient,) = torch.autograd.grad(-0.5 * uncertainty.square().sum(), features)
    share = features.detach() * gradient
    share = torch.where(share > 0, share, torch.full_like(share, -1000.0)).softmax(dim=1)
    return share * (1 - uncertainty.detach()).clamp(0, 1)[:, None]
