"""MCC: minimum class confusion (Jin, Wang, Long and Wang, ECCV 2020).

The objective is the cross-entropy on source images plus the class confusion of the target predictions, from the first
step on. The form is that of TLLib, which is by the same group: weights of the images without gradient, temperature 2.5,
weight 1. TLLib crops images to 8 to 100 % of their area (`--data.area 0.08`), which is a setting of the data here.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem, Recipe
from tcm.nn.losses import class_confusion


@dataclass(frozen=True)
class MCCConfig(MethodConfig):
    """MCC: target predictions that confuse each class with few others (Jin et al., 2020)."""

    authors_steps: ClassVar[int] = 30_000
    authors_batch: ClassVar[int] = 36

    trade_off: float = 1.0
    """Weight of the class confusion."""
    temperature: float = 2.5
    """Temperature of the predictions in the class confusion."""
    decay: float = 10.0
    """r in the factor (1 + r p)^-0.75 of the learning rates."""

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return cls(Recipe(lr=0.005, bottleneck=2048), decay=30.0)


class MCC(Method, config=MCCConfig):
    """Classification on the source, plus the class confusion on the target."""

    def __init__(self, problem: Problem, config: MCCConfig):
        super().__init__(problem, config)
        self.config, self.decay = config, config.decay

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss and class confusion."""
        features = self.features(torch.cat([batch.source, batch.target]))
        source, target = self.classifier(features).split([len(batch.source), len(batch.target)])
        return {
            "classification": F.cross_entropy(source, batch.labels),
            "confusion": self.config.trade_off * class_confusion(target, self.config.temperature),
        }
