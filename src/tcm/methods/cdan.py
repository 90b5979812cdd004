"""CDAN and CDAN+E: conditional adversarial domain adaptation (Long et al., NeurIPS 2018)."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.nn.heads import discriminator, multilinear_map, reverse_gradient
from tcm.nn.losses import confident_confusion, domain_confusion
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class CDANConfig(MethodConfig):
    """Conditional adversarial training: a discriminator that sees features together with the predicted class."""

    trade_off: float = 1.0
    """Weight of the domain loss."""
    weighting: Literal["equal", "entropy"] = "equal"
    """equal: all images count alike. entropy: those with a sure prediction count more."""
    hidden: int = 1024
    """Width of the discriminator."""


@dataclass(frozen=True)
class CDANEConfig(CDANConfig):
    """CDAN+E: conditional adversarial training in which images with a sure prediction count more."""

    weighting: Literal["equal", "entropy"] = "entropy"


class CDAN(Method, config=CDANConfig):
    """Classification on the source, plus a discriminator of features times predictions behind a gradient reversal."""

    def __init__(self, problem: Problem, config: CDANConfig):
        super().__init__(problem, config)
        self.trade_off = config.trade_off
        self.weighting = config.weighting
        self.discriminator = discriminator(config.recipe.bottleneck * problem.classes, config.hidden)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification and domain loss; the reversal's factor grows with progress, as DANN's."""
        both = [len(batch.source), len(batch.target)]
        features = self.features(torch.cat([batch.source, batch.target]))
        logits = self.classifier(features)
        # Constants, as in the authors' code: the discriminator reaches the classifier through the features alone.
        predictions = logits.detach().float().softmax(dim=1)
        joint = multilinear_map(features, predictions)
        source, target = self.discriminator(reverse_gradient(joint, ramp_up(progress))).float().split(both)
        if self.weighting == "entropy":
            domain = confident_confusion(source, target, *predictions.split(both))
        else:
            domain = domain_confusion(source, target)
        return {
            "classification": F.cross_entropy(logits[: both[0]], batch.labels),
            "domain": self.trade_off * domain,
        }
