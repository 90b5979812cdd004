"""FixMatch for domain adaptation (Sohn et al., NeurIPS 2020), in the form of TLLib.

The paper is about semi-supervised learning. Here source images are the labelled ones and target images the unlabelled
ones: a confident prediction on a target image is the label of a strongly augmented view of it. There is no moving
average of the weights. The strong views are those of this library, in place of RandAugment; TLLib's weak views of
target images are crops of 50 to 100 % of the area.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem, Recipe
from tcm.methods.tcm.views import features_of
from tcm.nn.losses import self_training


@dataclass(frozen=True)
class FixMatchConfig(MethodConfig):
    """FixMatch: confident predictions on target images are labels of strong views of them (Sohn et al., 2020)."""

    authors_steps: ClassVar[int] = 20_000

    trade_off: float = 1.0
    """Weight of the pseudo-label loss."""
    threshold: float = 0.9
    """Smallest confidence of a pseudo-label: 0.9 in TLLib, 0.95 in the paper."""
    separate_passes: bool = False
    """Pass source images, target images and strong views through the network one kind at a time, as TLLib does."""
    decay: float = 10.0
    """r in the factor (1 + r p)^-0.75 of the learning rates."""

    @property
    def strong_counterfactuals(self) -> float:
        """No strong view starts from a counterfactual."""
        return 0.0

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return cls(Recipe(lr=0.003, bottleneck=1024), separate_passes=True, decay=8.0)


class FixMatch(Method, config=FixMatchConfig):
    """Classification on the source, plus pseudo-labels for strong views of the target."""

    def __init__(self, problem: Problem, config: FixMatchConfig):
        super().__init__(problem, config)
        self.config, self.decay = config, config.decay

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss and pseudo-label loss. The predictions on weak target views have no gradient."""
        assert batch.strong is not None
        kinds = batch.source, batch.target, batch.strong.target
        features = features_of(self.features, kinds, self.config.separate_passes)
        source, target, strong = (self.classifier(found) for found in features)
        return {
            "classification": F.cross_entropy(source, batch.labels),
            "pseudo_labels": self.config.trade_off * self_training(target, strong, self.config.threshold),
        }
