"""CST: cycle self-training (Liu, Wang and Long, NeurIPS 2021).

The objective has four terms. The cross-entropy on source images. The cycle: a linear classifier that is fitted to the
pseudo-labelled target features of the batch must predict the labels of the source. The Tsallis entropy of target
predictions, with the weights of MCC. And, from the authors' code, FixMatch: confident predictions are labels of strong
views.

What differs from the authors' code: the Tsallis entropy is a mean over classes and not a sum, so its weight does not
depend on their number (the authors' 0.015 for 65 classes and 0.08 for 12 are 0.98 and 0.96 here). All views go through
the network in one pass; `separate_passes` is the authors' form. The views are those of this library: the authors have
RandAugment, crops of 8 to 100 % of the area for source images, and centre crops for target images. SGD has
Nesterov momentum. SAM is off unless `rho` is given: it is an extra in the paper.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import MethodConfig, Problem, Recipe
from tcm.methods.sharpness import SharpnessAwareMethod
from tcm.nn.losses import reverse_prediction_error, self_training, tsallis_confusion

INDEX = 1.9  # of the Tsallis entropy


@dataclass(frozen=True)
class CSTConfig(MethodConfig):
    """CST: a classifier fitted to pseudo-labels of the target must predict the source (Liu et al., 2021)."""

    authors_steps: ClassVar[int] = 30_000
    authors_batch: ClassVar[int] = 28

    cycle: float = 2.0
    """Weight of the cycle loss."""
    confusion: float = 1.0
    """Weight of the Tsallis entropy."""
    temperature: float = 2.5
    """Temperature of the predictions in the Tsallis entropy."""
    pseudo_labels: float = 0.5
    """Weight of the pseudo-label loss on strong views."""
    threshold: float = 0.97
    """Smallest confidence of a pseudo-label for strong views."""
    rho: float = 0.0
    """Size of the neighbourhood of adaptive SAM; 0: plain SGD. A step of SAM takes twice the time."""
    separate_passes: bool = False
    """Pass strong views through the network on their own, as in the authors' code."""
    decay: float = 10.0
    """r in the factor (1 + r p)^-0.75 of the learning rates."""

    @property
    def strong_counterfactuals(self) -> float:
        """No strong view starts from a counterfactual."""
        return 0.0

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        recipe = Recipe(lr=0.005, bottleneck=2048)
        return cls(recipe, confusion=0.975, rho=0.5, separate_passes=True, decay=30.0)


class CST(SharpnessAwareMethod, config=CSTConfig):
    """Classification on the source, the cycle loss, the Tsallis entropy, and pseudo-labels for strong target views."""

    def __init__(self, problem: Problem, config: CSTConfig):
        super().__init__(problem, config)
        self.config, self.classes = config, problem.classes
        self.decay, self.rho = config.decay, config.rho

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms by name. The cycle is on the features of the backbone, as in the authors' code."""
        assert batch.strong is not None
        config, labels = self.config, batch.labels
        weak, strong = torch.cat([batch.source, batch.target]), batch.strong.target
        passes = [weak, strong] if config.separate_passes else [torch.cat([weak, strong])]
        pooled = [self.backbone(images) for images in passes]
        logits = self.classifier(torch.cat([self.bottleneck(features) for features in pooled]))
        counts = len(batch.source), len(batch.target), len(strong)
        source_features, target_features, _ = torch.cat(pooled).split(counts)
        source, target, strong_target = logits.split(counts)
        cycle = reverse_prediction_error(
            target_features, target.argmax(dim=1), source_features, labels, classes=self.classes
        )
        return {
            "classification": F.cross_entropy(source, labels),
            "cycle": config.cycle * cycle,
            "confusion": config.confusion * tsallis_confusion(target, config.temperature, INDEX),
            "pseudo_labels": config.pseudo_labels * self_training(target, strong_target, config.threshold),
        }
