"""DANN: domain-adversarial training of neural networks (Ganin et al., JMLR 2016)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.nn.heads import discriminator, reverse_gradient
from tcm.nn.losses import domain_confusion
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class DANNConfig(MethodConfig):
    """DANN: features that a domain discriminator cannot tell apart (Ganin et al., 2016)."""

    trade_off: float = 1.0
    """Weight of the domain loss."""
    hidden: int = 1024
    """Width of the discriminator."""


class DANN(Method, config=DANNConfig):
    """Classification on the source, plus a domain discriminator behind a gradient reversal layer."""

    def __init__(self, problem: Problem, config: DANNConfig):
        super().__init__(problem, config)
        self.trade_off = config.trade_off
        self.discriminator = discriminator(config.recipe.bottleneck, config.hidden)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss and domain loss."""
        return self.terms(self.features(torch.cat([batch.source, batch.target])), batch.labels, progress)

    def terms(self, features: Tensor, labels: Tensor, progress: float) -> dict[str, Tensor]:
        """The losses by name. The features are those of the labelled source images, then those of the target images.

        The factor of the gradient reversal grows with progress: at first the discriminator is still untrained.
        """
        domains = self.discriminator(reverse_gradient(features, ramp_up(progress)))
        source, target = domains.tensor_split([len(labels)])
        return {
            "classification": F.cross_entropy(self.classifier(features[: len(labels)]), labels),
            "domain": self.trade_off * domain_confusion(source, target),
        }
