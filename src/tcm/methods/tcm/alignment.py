"""Discriminators behind a gradient reversal layer, which make the domains look alike to a classifier.

Each returns the loss that its discriminators minimise; reversed and times a factor, the features maximise it.
"""

import torch
from torch import Tensor, nn

from tcm.methods.tcm.views import Views
from tcm.nn.heads import discriminator, multilinear_map, plain_discriminator, reverse_gradient
from tcm.nn.losses import confident_confusion, proxy_loss


class ConditionalAlignment(nn.Module):
    """Features of both domains together with the predicted class, counterfactuals included: Eq. (8) of Long et al.
    (2018), CDAN+E."""

    def __init__(self, features: int, classes: int, hidden: int):
        super().__init__()
        self.judge = discriminator(features * classes, hidden)

    def forward(self, features: Views, logits: Views, factor: float) -> Tensor:
        """The domain loss on all views, weighted by how sure the predictions are; these are constants here."""
        sure = logits.flat.detach().float().softmax(dim=-1)
        judged = self.judge(reverse_gradient(multilinear_map(features.flat, sure), factor)).float()
        return confident_confusion(*features.like(judged), *logits.like(sure))


class ProxyAlignment(nn.Module):
    """Features of counterfactuals and of real images of the domain that they were carried to: the proxy loss, TCM
    Eq. (10), with D_s and D_t of Appendix A.3.2."""

    def __init__(self, features: int, hidden: int, dropout: float = 0.0):
        super().__init__()
        self.source, self.target = (plain_discriminator(features, hidden, dropout) for _ in range(2))

    def forward(self, features: Views, factor: float) -> Tensor:
        """D_s on source images and transported target images, D_t on target images and transported source images."""
        source, target = (reverse_gradient(part, factor) for part in features)
        on_source, on_transported_target = self.source(source[0]), self.source(target[1:])
        on_target, on_transported_source = self.target(target[0]), self.target(source[1:])
        return proxy_loss(on_source, on_transported_source, on_target, on_transported_target)


class PredictionAlignment(nn.Module):
    """Class probabilities on transported source images and on target images: the authors' code."""

    def __init__(self, classes: int, hidden: int, dropout: float = 0.0):
        super().__init__()
        self.judge = plain_discriminator(classes, hidden, dropout)

    def forward(self, transported_source: Tensor, target: Tensor, factor: float) -> Tensor:
        """The domain loss of logits [..., classes], weighted by how sure the predictions are."""
        with torch.autocast(target.device.type, enabled=False):
            both = (transported_source.flatten(0, -2), target.flatten(0, -2))
            sure = [part.to(torch.promote_types(part.dtype, torch.float32)).softmax(dim=-1) for part in both]
            judged = [self.judge(reverse_gradient(part, factor)) for part in sure]
            return confident_confusion(*judged, *sure)
