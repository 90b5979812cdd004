"""What makes both domains' images look alike to a classifier: four places at which a discriminator can stand."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tcm.methods.tcm.views import Views
from tcm.nn.heads import discriminator, multilinear_map, plain_discriminator, reverse_gradient
from tcm.nn.losses import confident_confusion, domain_confusion, proxy_loss


@dataclass(frozen=True)
class AlignmentConfig:
    """What a discriminator is not to tell apart."""

    kind: Literal["conditional", "domains", "proxies", "predictions"] = "conditional"
    """domains: features of both domains, counterfactuals included (DANN). conditional: the same, each together with the
    predicted class and weighted by how sure that is (CDAN+E). proxies: features of counterfactuals and of real images
    of the domain that they were carried to (Eq. 10). predictions: class probabilities on transported source and on
    target images, weighted by how sure they are (the authors' code)."""
    weight: float = 1.0
    """alpha, the weight of this term; its reversed gradient grows with progress."""
    hidden: int = 1024
    """Width of the discriminators."""
    dropout: float = 0.0
    """Dropout in the discriminators of proxies and predictions: 0.5 in the authors' code, none in the paper."""

    def build(self, features: int, classes: int) -> "Alignment":
        """The discriminators, with fresh weights."""
        if self.kind == "domains":
            return DomainAlignment(discriminator(features, self.hidden))
        if self.kind == "conditional":
            return ConditionalAlignment(discriminator(features * classes, self.hidden))
        if self.kind == "proxies":
            return ProxyAlignment(features, self)
        return PredictionAlignment(plain_discriminator(classes, self.hidden, self.dropout))


class Alignment(nn.Module):
    """One or two discriminators behind a gradient reversal layer."""

    @abstractmethod
    def forward(self, features: Views, logits: Views, factor: float) -> Tensor:
        """What the discriminators minimise and, reversed and times the factor, the features maximise."""


class DomainAlignment(Alignment):
    """Eq. (4) of Ganin et al. (2016), counterfactuals included."""

    def __init__(self, judge: nn.Module):
        super().__init__()
        self.judge = judge

    def forward(self, features: Views, logits: Views, factor: float) -> Tensor:
        """The domain loss on all views."""
        found = features.like(self.judge(reverse_gradient(features.flat, factor)))
        return domain_confusion(*found)


class ConditionalAlignment(Alignment):
    """Eq. (8) of Long et al. (2018), counterfactuals included."""

    def __init__(self, judge: nn.Module):
        super().__init__()
        self.judge = judge

    def forward(self, features: Views, logits: Views, factor: float) -> Tensor:
        """The domain loss on all views, each with its prediction, which is a constant here."""
        sure = logits.flat.detach().float().softmax(dim=-1)
        judged = self.judge(reverse_gradient(multilinear_map(features.flat, sure), factor)).float()
        return confident_confusion(*features.like(judged), *logits.like(sure))


class ProxyAlignment(Alignment):
    """The proxy loss, Eq. (10), with D_s and D_t of Appendix A.3.2."""

    def __init__(self, features: int, config: AlignmentConfig):
        super().__init__()
        self.source, self.target = (plain_discriminator(features, config.hidden, config.dropout) for _ in range(2))

    def forward(self, features: Views, logits: Views, factor: float) -> Tensor:
        """D_s on source images and transported target images, D_t on target images and transported source images."""
        source, target = (reverse_gradient(part, factor) for part in features)
        on_source, on_transported_target = self.source(source[0]), self.source(target[1:])
        on_target, on_transported_source = self.target(target[0]), self.target(source[1:])
        return proxy_loss(on_source, on_transported_source, on_target, on_transported_target)


class PredictionAlignment(Alignment):
    """The alignment of the authors' code: of predictions, in one direction."""

    def __init__(self, judge: nn.Module):
        super().__init__()
        self.judge = judge

    def forward(self, features: Views, logits: Views, factor: float) -> Tensor:
        """The domain loss between predictions on transported source images and on target images."""
        both = [logits.source[1:].flatten(0, 1), logits.target[0]]
        with torch.autocast(both[0].device.type, enabled=False):
            sure = [part.to(torch.promote_types(part.dtype, torch.float32)).softmax(dim=-1) for part in both]
            judged = [self.judge(reverse_gradient(part, factor)) for part in sure]
            return confident_confusion(*judged, *sure)
