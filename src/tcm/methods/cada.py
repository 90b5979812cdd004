"""CADA: attending to discriminative certainty (Kurmi, Kumar, Namboodiri, CVPR 2019).

The classifier and the domain discriminator say how uncertain they are. Where the discriminator is certain, features
can be adapted, so the classifier is trained on features f (1 + w). The weight w of a feature is large if it makes the
discriminator more certain (`certainty_attention`). The objective is the cross-entropy of the classifier on such
features of the source with smoothed labels, plus the domain loss on f behind a gradient reversal layer, plus for both a
Bayesian cross-entropy, which teaches the variances. The attention has no gradient and is for training only.

`uncertainty` chooses what the discriminator says of itself. CADA-P is the predictive uncertainty, over passes with
dropout. CADA-A is the aleatoric uncertainty, the variance that the discriminator predicts.

The authors' code has only CADA-A. The formula of CADA-P, entropy plus mean variance, is our reading of the paper's
description. Other differences from the code:

- Its cross-entropy is a sum over 20 images, while its other losses are means. `authors` has the same ratio.
- The factor of the gradient reversal grows with progress, as in the other methods; there it is 1 after one epoch.
- Its gradient of the noise with respect to the variance, and that of f (1 + w) with respect to f, are not the
  derivatives of its forward pass. Here they are.
- Its labels are smoothed by classes / 100, which is 0.31 for Office-31 and would be 0.65 for Office-Home.
- It freezes the first half of the ResNet, and its bottleneck has no batch normalisation.
- It predicts by the mean over 100 passes with dropout; here dropout is off.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Answer, Method, MethodConfig, Problem, Recipe
from tcm.methods.tcm.views import features_of
from tcm.nn.heads import reverse_gradient
from tcm.nn.losses import in_single
from tcm.nn.schedules import ramp_up
from tcm.nn.uncertainty import (
    UncertainClassifier,
    bayesian_cross_entropy,
    certainty_attention,
    predictive_uncertainty,
)

CLASSIFIER_WIDTH = 128


@dataclass(frozen=True)
class CADAConfig(MethodConfig):
    """CADA: attention to the features on which a domain discriminator is certain (Kurmi et al., 2019)."""

    authors_batch: ClassVar[int] = 20

    uncertainty: Literal["predictive", "aleatoric"] = "predictive"
    """Of the discriminator. predictive: over passes with dropout (CADA-P). aleatoric: its own variance (CADA-A)."""
    trade_off: float = 1.0
    """Weight of both losses of the discriminator."""
    domain_variance: float = 0.2
    """Weight of the Bayesian cross-entropy of the discriminator, relative to its domain loss."""
    class_variance: float = 0.2
    """Weight of the Bayesian cross-entropy of the classifier."""
    smoothing: float = 0.1
    """Label smoothing of the classification loss."""
    sharpness: float = 10.0
    """The factor of the gradient reversal grows as 2 / (1 + exp(-sharpness p)) - 1 with the progress p."""
    passes: int = 10
    """Passes with dropout of the predictive uncertainty."""
    draws: int = 100
    """Draws of noise in the Bayesian cross-entropy."""
    hidden: int = 1024
    """Width of the discriminator."""
    separate_passes: bool = False
    """Pass each domain through the network on its own, as in the authors' code."""

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe.

        Their code is for Office-31. It starts SGD anew in every step, so that momentum has no effect. Its learning
        rates are 2e-4 and 2e-3 for a classification loss that is a sum over 20 images: as its mean has weight 1 here,
        the rates are 20 times as large, and all other weights are a 20th. It has no fixed number of steps.
        """
        return cls(
            Recipe(lr=0.04, momentum=0.0, weight_decay=5e-5),
            trade_off=0.1,  # their domain loss is the sum, not the mean, of both domains
            class_variance=0.01,
            sharpness=1000.0,
            passes=100,
            separate_passes=True,
        )


class CADA(Method, config=CADAConfig):
    """A classifier on attended features, and a discriminator behind a gradient reversal layer, both with variances."""

    def __init__(self, problem: Problem, config: CADAConfig):
        super().__init__(problem, config)
        del self.classifier
        self.config = config
        width, hidden = config.recipe.bottleneck, config.hidden
        self.bayesian_classifier = UncertainClassifier(width, (CLASSIFIER_WIDTH,), problem.classes)
        self.discriminator = UncertainClassifier(width, (hidden, hidden), 2)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss and domain loss, and the Bayesian cross-entropy of each."""
        config, labels = self.config, batch.labels
        kinds = features_of(self.features, (batch.source, batch.target), config.separate_passes)
        with torch.autocast(labels.device.type, enabled=False):
            source, target = map(in_single, kinds)
            logits, variance = self.bayesian_classifier(source * (1 + self.attention(source)))
            domain, domain_variance = self.domain_losses(source, target, ramp_up(progress, config.sharpness))
            return {
                "classification": F.cross_entropy(logits, labels, label_smoothing=config.smoothing),
                "class_variance": config.class_variance
                * bayesian_cross_entropy(logits, labels, variance, config.draws),
                "domain": config.trade_off * domain,
                "domain_variance": config.trade_off * config.domain_variance * domain_variance,
            }

    def attention(self, features: Tensor) -> Tensor:
        """The weight w of every feature, [batch, bottleneck], without gradient."""
        with torch.enable_grad():
            leaf = features.detach().requires_grad_()
            if self.config.uncertainty == "predictive":
                uncertainty = predictive_uncertainty(self.discriminator, leaf, self.config.passes)
            else:
                _, uncertainty = self.discriminator(leaf)
            return certainty_attention(leaf, uncertainty)

    def domain_losses(self, source: Tensor, target: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        """The cross-entropy of the discriminator and its Bayesian cross-entropy, each the mean of both domains."""
        terms = []
        for domain, features in enumerate((source, target)):
            logits, variance = self.discriminator(reverse_gradient(features, factor))
            labels = torch.full((len(features),), domain, device=features.device)
            bayesian = bayesian_cross_entropy(logits, labels, variance, self.config.draws)
            terms.append(torch.stack([F.cross_entropy(logits, labels), bayesian]))
        plain, bayesian = torch.stack(terms).mean(dim=0)
        return plain, bayesian

    def answer(self, images: Tensor) -> Answer:
        """The logits of the classifier on features without attention, as in the authors' code, and the features."""
        features = self.features(images)
        return Answer(self.bayesian_classifier(features)[0], features)
