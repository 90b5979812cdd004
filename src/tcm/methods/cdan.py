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
    """CDAN: features that a discriminator cannot tell apart, given the predicted class (Long et al., 2018)."""

    trade_off: float = 1.0
    """Weight of the domain loss."""
    weighting: Literal["equal", "entropy"] = "equal"
    """Weights of the images in the domain loss. equal: all the same. entropy: confident predictions count more."""
    hidden: int = 1024
    """Width of the discriminator."""


@dataclass(frozen=True)
class CDANEConfig(CDANConfig):
    """CDAN+E: CDAN in which images with a confident prediction count more (Long et al., 2018)."""

    weighting: Literal["equal", "entropy"] = "entropy"


class CDAN(Method, config=CDANConfig):
    """Classification on the source, plus a discriminator of features x predictions behind a gradient reversal layer."""

    def __init__(self, problem: Problem, config: CDANConfig):
        super().__init__(problem, config)
        self.trade_off = config.trade_off
        self.weighting = config.weighting
        self.discriminator = discriminator(config.recipe.bottleneck * problem.classes, config.hidden)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss and domain loss. The factor of the gradient reversal grows with progress, as in DANN."""
        both = [len(batch.source), len(batch.target)]
        features = self.features(torch.cat([batch.source, batch.target]))
        logits = self.classifier(features)
        # Without gradient, as in the authors' code: the domain loss does not train the classifier.
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
