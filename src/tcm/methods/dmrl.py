"""DMRL: dual mixup regularised learning (Wu, Inkpen and El-Roby, ECCV 2020).

DANN, plus four terms on mixtures x = a x_1 + (1 - a) x_2 of images. One share a ~ Beta(0.2, 0.2) is drawn for each kind
of mixture in a batch. Category mixup mixes images of one domain:

- two source images: a CE(x, y_1) + (1 - a) CE(x, y_2);
- two target images: the mean over classes of |softmax(z(x)) - softmax(a z(x_1) + (1 - a) z(x_2))|, z the logits.

Domain mixup has two forms. By default a source image is mixed with a target image, and the discriminator should find
the share a of the source. In the authors' code it sees the mixtures of category mixup, which keep the label of their
domain. The authors' code is for digits. It passes some images through the network several times in a step, for which
one pass suffices here, and it updates the discriminator from the second epoch on. Here the gradient reversal grows with
progress, as in DANN.
"""

from dataclasses import dataclass
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Beta

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.nn.heads import discriminator, reverse_gradient
from tcm.nn.losses import classifier_discrepancy, domain_confusion, in_single
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class DMRLConfig(MethodConfig):
    """DMRL: DANN whose classifier and discriminator also learn from mixtures of images (Wu et al., 2020)."""

    trade_off: float = 1.0
    """Weight of the domain loss on images."""
    category_mixup: float = 1.0
    """Weight of the two classification losses on mixtures, one for each domain."""
    domain_mixup: float = 1.0
    """Weight of the domain loss on mixtures."""
    mixtures: Literal["between", "within"] = "between"
    """What the discriminator sees beside images. between: mixtures of a source and a target image, labelled with the
    share of the source. within: mixtures of images of one domain, labelled with the domain, as in the authors' code."""
    concentration: float = 0.2
    """Both parameters of the Beta distribution of the shares. Small values give mixtures that are close to an image."""
    hidden: int = 1024
    """Width of the discriminator."""

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return cls(mixtures="within")


class DMRL(Method, config=DMRLConfig):
    """Classification on the source, a domain discriminator behind a gradient reversal layer, and both on mixtures."""

    def __init__(self, problem: Problem, config: DMRLConfig):
        super().__init__(problem, config)
        self.config = config
        self.discriminator = discriminator(config.recipe.bottleneck, config.hidden)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms by name, all of them from one pass."""
        config, labels, count = self.config, batch.labels, len(batch.labels)
        share, target_share, source_part = (drawn_share(config.concentration) for _ in range(3))
        partner, target_partner = (torch.randperm(count, device=labels.device) for _ in range(2))
        views = [
            batch.source,
            batch.target,
            mixture(batch.source, batch.source[partner], share),
            mixture(batch.target, batch.target[target_partner], target_share),
        ]
        if config.mixtures == "between":
            views.append(mixture(batch.source, batch.target, source_part))
        features = self.features(torch.cat(views))
        source, target, mixed_source, mixed_target = self.classifier(features[: 4 * count]).split(count)
        domain, on_mixtures = self.domain_losses(features, count, source_part, ramp_up(progress))
        mixed_logits = mixture(in_single(target), in_single(target)[target_partner], target_share)
        return {
            "classification": F.cross_entropy(source, labels),
            "domain": config.trade_off * domain,
            "source_mixup": config.category_mixup
            * mixture(F.cross_entropy(mixed_source, labels), F.cross_entropy(mixed_source, labels[partner]), share),
            "target_mixup": config.category_mixup * classifier_discrepancy(mixed_target, mixed_logits),
            "domain_mixup": config.domain_mixup * on_mixtures,
        }

    def domain_losses(self, features: Tensor, count: int, share: float, factor: float) -> tuple[Tensor, Tensor]:
        """The domain loss on images and on mixtures, from the features of all views, `count` of each kind.

        `share` is the part of the source in the mixtures between domains.
        """
        kinds = features.split(count)
        seen = kinds if self.config.mixtures == "within" else [*kinds[:2], kinds[4]]
        logits = in_single(self.discriminator(reverse_gradient(torch.cat([*seen]), factor)))
        source, target, *mixed = logits.split(count)
        images = domain_confusion(source, target)
        if self.config.mixtures == "within":
            return images, domain_confusion(*mixed)
        return images, F.binary_cross_entropy_with_logits(mixed[0], torch.full_like(mixed[0], share))


def drawn_share(concentration: float) -> float:
    """A random share from Beta(concentration, concentration), drawn on the CPU, so that no device has to wait."""
    return float(Beta(concentration, concentration).sample())


def mixture(first: Tensor, second: Tensor, share: float) -> Tensor:
    """share x first + (1 - share) x second."""
    return share * first + (1 - share) * second
