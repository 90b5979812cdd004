"""Alignment losses: discriminators behind a gradient reversal layer, which make the features of domains alike.

Each returns the loss that its discriminators minimise. The gradient that reaches the features is multiplied by -factor,
so the features maximise it.
"""

import torch
from torch import Tensor, nn

from tcm.methods.tcm.views import Views
from tcm.nn.heads import plain_discriminator, reverse_gradient
from tcm.nn.losses import certain_confusion, entropy, in_single, proxy_loss


class ProxyAlignment(nn.Module):
    """The proxy loss, TCM Eq. (10): D_s and D_t separate real images of a domain from images transported to it."""

    def __init__(self, features: int, hidden: int, dropout: float = 0.0):
        super().__init__()
        self.source, self.target = (plain_discriminator(features, hidden, dropout) for _ in range(2))

    def forward(self, features: Views, factor: float) -> Tensor:
        """-L_p from features: D_s sees x_s and transported x_t, D_t sees x_t and transported x_s."""
        source, target = (reverse_gradient(part, factor) for part in features)
        on_source, on_transported_target = self.source(source[0]), self.source(target[1:])
        on_target, on_transported_source = self.target(target[0]), self.target(source[1:])
        return proxy_loss(on_source, on_transported_source, on_target, on_transported_target)


class PredictionAlignment(nn.Module):
    """One discriminator of class probabilities, as in the authors' code: transported images against real ones."""

    def __init__(self, classes: int, hidden: int, dropout: float = 0.0):
        super().__init__()
        self.discriminator = plain_discriminator(classes, hidden, dropout)

    def forward(self, transported: Tensor, real: Tensor, factor: float) -> Tensor:
        """The domain loss of logits [..., classes], in which certain predictions count more.

        The gradient through their weights is reversed too: it makes both predictions more certain.
        """
        with torch.autocast(real.device.type, enabled=False):
            probabilities = [in_single(logits).softmax(dim=-1) for logits in (transported, real)]
            domain = [self.discriminator(reverse_gradient(part, factor)) for part in probabilities]
            entropies = [reverse_gradient(entropy(part), factor) for part in probabilities]
            return certain_confusion(*domain, *entropies)
