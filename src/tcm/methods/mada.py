"""MADA: multi-adversarial domain adaptation (Pei, Cao, Long, Wang, AAAI 2018).

Every class k has its own domain discriminator D_k behind a gradient reversal layer. Its input is p_k b: the features b
of an image, times the probability p_k of the class. So an image matters to the discriminators of the classes that it
may belong to. The objective is the cross-entropy on the source, plus 0.3 times the sum over k of the binary
cross-entropy of D_k.

As in the authors' code, the sum over the classes is not divided by their number, and p_k has no gradient. As in the
other methods here, the bottleneck has batch normalisation and ReLU; the authors' is only linear. Their code is for
AlexNet.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem, Recipe
from tcm.nn.heads import ClassDiscriminators, reverse_gradient
from tcm.nn.losses import domain_confusion, in_single
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class MADAConfig(MethodConfig):
    """MADA: one domain discriminator for each class, on features weighted by the prediction (Pei et al., 2018)."""

    authors_batch: ClassVar[int] = 64

    trade_off: float = 0.3
    """Weight of the domain loss of each class."""
    hidden: int = 1024
    """Width of the discriminators."""
    decay: float = 10.0
    """r in the factor (1 + r p)^-0.75 of the learning rates."""

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings; beside the small network, discriminators that a CPU can train."""
        return cls(hidden=256) if small else cls()

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe.

        They did not use Office-Home: these are their settings for Office-31.
        """
        return cls(Recipe(weight_decay=0.0), decay=3.0)


class MADA(Method, config=MADAConfig):
    """Classification on the source, plus one discriminator for each class behind a gradient reversal layer."""

    def __init__(self, problem: Problem, config: MADAConfig):
        super().__init__(problem, config)
        self.config, self.decay = config, config.decay
        self.discriminators = ClassDiscriminators(problem.classes, config.recipe.bottleneck, config.hidden)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss, and the domain loss summed over classes. The gradient reversal grows as in DANN."""
        both = [len(batch.source), len(batch.target)]
        features = self.features(torch.cat([batch.source, batch.target]))
        logits = self.classifier(features)
        # [classes, images, 1]. With a gradient, predictions could fool the discriminators without better features.
        predictions = in_single(logits.detach()).softmax(dim=1).T[:, :, None]
        weighted = predictions * reverse_gradient(features, ramp_up(progress))
        source, target = in_single(self.discriminators(weighted)).split(both, dim=1)
        domain = len(predictions) * domain_confusion(source, target)  # it is a mean over classes and images
        return {
            "classification": F.cross_entropy(logits[: both[0]], batch.labels),
            "domain": self.config.trade_off * domain,
        }
