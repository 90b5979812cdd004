"""SymNets: domain-symmetric networks (Zhang, Tang, Jia, Tan, CVPR 2019).

There are two classifiers, C^s for the source and C^t for the target, and no discriminator. Side by side their 2K logits
form a third classifier, C^st, of classes and domains: the sum of the first K of its probabilities is the probability of
the source. The classifiers minimise the cross-entropy of C^s and of C^t on the source, and the domain loss of C^st. The
backbone minimises three other losses:

- category confusion: C^st should give one half to the class in each of its two parts, on the source;
- domain confusion: C^st should give one half to each domain, on the target;
- the entropy of the class probabilities, summed over the domains, on the target.

The weight of the last two grows with progress. Both games are one step: the classifiers' losses see constant features,
the backbone's losses see constant classifiers. This gives the gradients of the authors' code with one backward pass.

The authors' code is followed, except that the weight grows with every step, not with every epoch, that both domains
pass the network together (see `separate_passes`), and that C^t always predicts, as in the paper: the code takes the
better of C^s and C^t by target accuracy.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.data.batch import Batch
from tcm.methods.method import Answer, Method, MethodConfig, Problem, Recipe
from tcm.methods.tcm.views import features_of
from tcm.nn.losses import category_confusion, domain_confusion, domain_of_classes, entropy, in_single
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class SymNetsConfig(MethodConfig):
    """SymNets: a source and a target classifier that together are the discriminator (Zhang et al., 2019)."""

    authors_steps: ClassVar[int] = 6_800  # 200 epochs of the larger domain
    authors_batch: ClassVar[int] = 128

    trade_off: float = 1.0
    """Final weight of the domain confusion and of the entropy on target images. It grows with progress."""
    separate_passes: bool = False
    """Pass each domain through the backbone on its own, as in the authors' code."""

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return cls(Recipe(weight_decay=1e-4), separate_passes=True)


class SymNets(Method, config=SymNetsConfig):
    """Two classifiers on the features of the backbone, which play a game with it."""

    def __init__(self, problem: Problem, config: SymNetsConfig):
        super().__init__(problem, config)
        del self.bottleneck, self.classifier
        self.config = config
        # The first half of its logits is C^s, the second half is C^t.
        self.classifiers = nn.Linear(problem.backbone.features, 2 * problem.classes)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The two losses of the classifiers, then the three losses of the backbone."""
        config, both, labels = self.config, [len(batch.source), len(batch.target)], batch.labels
        features = torch.cat(features_of(self.backbone, (batch.source, batch.target), config.separate_passes))
        with torch.autocast(features.device.type, enabled=False):
            features = in_single(features)
            source, target = self.classifiers(features.detach()).split(both)
            constant = self.classifiers.weight.detach(), self.classifiers.bias.detach()
            source_game, target_game = F.linear(features, *constant).split(both)
            by_source, by_target = source.chunk(2, dim=1)
            target_domain, weight = domain_of_classes(target_game), config.trade_off * ramp_up(progress)
            target_classes = target_game.softmax(dim=1).unflatten(1, (2, -1)).sum(dim=1)
            return {
                "classification": F.cross_entropy(by_source, labels) + F.cross_entropy(by_target, labels),
                "domain": 2 * domain_confusion(domain_of_classes(source), domain_of_classes(target)),
                "category_confusion": category_confusion(source_game, labels),
                "domain_confusion": weight * domain_confusion(target_domain, target_domain),
                "entropy": weight * entropy(target_classes).mean(),
            }

    def features(self, images: Tensor) -> Tensor:
        """The input of the classifiers: [batch, features of the backbone]."""
        return self.backbone(images)

    def answer(self, images: Tensor) -> Answer:
        """The logits of C^t and their input. C^s is a prediction variant."""
        features = self.features(images)
        source, target = self.classifiers(features).chunk(2, dim=1)
        return Answer(target, features, {"source classifier": source})
