"""GVB-GD: gradually vanishing bridges (Cui et al., CVPR 2020).

A bridge holds what is specific to a domain and shall vanish during training. The bridge of the generator, G(f), is
subtracted from the logits of the classifier: y = C(f) - G(f), also for predictions. The bridge of the discriminator, b,
is subtracted from its logit: d - b. The discriminator sees the class probabilities softmax(y) behind a gradient
reversal layer. The objective is the cross-entropy on the source, plus the domain loss, in which certain predictions
count more, plus the means of |G(f)| and of |b|.

As in the authors' code, the gradient through the weights of the domain loss is reversed too, |b| reaches the features
through the gradient reversal, and there is no bottleneck. Unlike it, both domains pass the network together (see
`separate_passes`). Its schedules count to 10,000 steps, but it stops at 8,004; here they end with the training.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.data.batch import Batch
from tcm.methods.method import Answer, Method, MethodConfig, Problem
from tcm.methods.tcm.views import features_of
from tcm.nn.heads import initialise_kaiming, plain_discriminator, reverse_gradient
from tcm.nn.losses import certain_confusion, entropy, in_single
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class GVBConfig(MethodConfig):
    """GVB-GD: aligned class probabilities, with vanishing domain-specific parts (Cui et al., 2020)."""

    authors_steps: ClassVar[int] = 8_004
    authors_batch: ClassVar[int] = 36

    trade_off: float = 1.0
    """Weight of the domain loss."""
    generator_bridge: float = 1.0
    """Weight of the size of the generator's bridge."""
    discriminator_bridge: float = 1.0
    """Weight of the size of the discriminator's bridge."""
    hidden: int = 1024
    """Width of the discriminator."""
    dropout: float = 0.5
    """Dropout in the discriminator."""
    separate_passes: bool = False
    """Pass each domain through the backbone on its own, as in the authors' code."""

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return cls(separate_passes=True)


class GVB(Method, config=GVBConfig):
    """Classification on the source, alignment of class probabilities, and two bridges that shall vanish."""

    def __init__(self, problem: Problem, config: GVBConfig):
        super().__init__(problem, config)
        del self.bottleneck
        self.config = config
        width, classes = problem.backbone.features, problem.classes
        self.classifier = nn.Linear(width, classes).apply(initialise_kaiming)
        self.bridge = nn.Linear(width, classes).apply(initialise_kaiming)
        self.discriminator = plain_discriminator(classes, config.hidden, config.dropout, outputs=2)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss, domain loss, and the sizes of both bridges."""
        config, both = self.config, [len(batch.source), len(batch.target)]
        features = torch.cat(features_of(self.backbone, (batch.source, batch.target), config.separate_passes))
        with torch.autocast(features.device.type, enabled=False):
            features = in_single(features)
            bridge = self.bridge(features)
            logits = self.classifier(features) - bridge
            probabilities, factor = logits.softmax(dim=1), ramp_up(progress)
            domain, domain_bridge = self.discriminator(reverse_gradient(probabilities, factor)).unbind(dim=1)
            # The reversed gradient of the entropies makes predictions more certain.
            entropies = reverse_gradient(entropy(probabilities), factor).split(both)
            confusion = certain_confusion(*(domain - domain_bridge)[:, None].split(both), *entropies)
            return {
                "classification": F.cross_entropy(logits[: both[0]], batch.labels),
                "domain": config.trade_off * confusion,
                "generator_bridge": config.generator_bridge * bridge.abs().mean(),
                "discriminator_bridge": config.discriminator_bridge * domain_bridge.abs().mean(),
            }

    def features(self, images: Tensor) -> Tensor:
        """The input of the classifier and of the bridge: [batch, features of the backbone]."""
        return self.backbone(images)

    def answer(self, images: Tensor) -> Answer:
        """The logits of the classifier minus the bridge, and their input."""
        features = self.features(images)
        return Answer(self.classifier(features) - self.bridge(features), features)
