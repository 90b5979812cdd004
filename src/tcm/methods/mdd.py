"""MDD: margin disparity discrepancy (Zhang et al., ICML 2019)."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem, Recipe
from tcm.nn.heads import hidden_classifier, reverse_gradient
from tcm.nn.losses import margin_disparity
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class MDDConfig(MethodConfig):
    """MDD: features on which no classifier agrees on the source and disagrees on the target (Zhang et al., 2019)."""

    recipe: Recipe = field(default_factory=lambda: Recipe(lr=0.004, bottleneck=1024))
    trade_off: float = 1.0
    """Weight of the disparity discrepancy."""
    margin: float = 4.0
    """gamma, the weight of agreement on the source relative to disagreement on the target."""
    reversal: float = 0.1
    """Largest factor of the gradient reversal, which grows with progress."""
    hidden: int = 1024
    """Width of the hidden layer of both classifiers."""


class MDD(Method, config=MDDConfig):
    """Classification on the source, plus an adversarial classifier behind a gradient reversal layer."""

    def __init__(self, problem: Problem, config: MDDConfig):
        super().__init__(problem, config)
        self.config = config
        self.bottleneck.append(nn.Dropout(0.5))
        widths = config.recipe.bottleneck, config.hidden, problem.classes
        self.classifier, self.rival = hidden_classifier(*widths), hidden_classifier(*widths)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss and margin disparity."""
        config, both = self.config, [len(batch.source), len(batch.target)]
        features = self.features(torch.cat([batch.source, batch.target]))
        source, target = self.classifier(features).split(both)
        reversed_features = reverse_gradient(features, config.reversal * ramp_up(progress))
        source_rival, target_rival = self.rival(reversed_features).split(both)
        disparity = margin_disparity(source, target, source_rival, target_rival, config.margin)
        return {
            "classification": F.cross_entropy(source, batch.labels),
            "disparity": config.trade_off * disparity,
        }
