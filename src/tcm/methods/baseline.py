"""The paper's Baseline (TCM Section 4.2): domain mapping with one mechanism, a CycleGAN."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem, Recipe
from tcm.methods.tcm.alignment import ProxyAlignment
from tcm.methods.tcm.views import all_views
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class BaselineConfig(MethodConfig):
    """Baseline: a classifier on source images that one mechanism transported to the target (TCM Section 4.2)."""

    uses_counterfactuals: ClassVar[bool] = True
    number_of_mechanisms: ClassVar[int | None] = 1

    recipe: Recipe = field(default_factory=lambda: Recipe(lr=3e-3))  # as in tcm-paper
    input: Literal["backbone", "bottleneck"] = "backbone"
    """The features that the discriminators see."""
    alpha: float = 1.0
    """Weight of the proxy loss, TCM Eq. (10). The factor of its reversed gradient grows with progress."""
    hidden: int = 1024
    """Width of the discriminators."""

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings; the small network has the learning rate of the other methods."""
        return cls(recipe=Recipe()) if small else cls()


class Baseline(Method, config=BaselineConfig):
    """Classification of transported source images, and the proxy loss of TCM Eq. (10)."""

    def __init__(self, problem: Problem, config: BaselineConfig):
        super().__init__(problem, config)
        self.config = config
        width = config.recipe.bottleneck if config.input == "bottleneck" else problem.backbone.features
        self.alignment = ProxyAlignment(width, config.hidden)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Cross-entropy on the transported source images M(x_s), and the proxy loss on the features of both domains."""
        # All views in one pass: batch normalisation sees them together.
        views = all_views(batch)
        pooled = views.like(self.backbone(views.flat))
        features = pooled.like(self.bottleneck(pooled.flat))
        logits = self.classifier(features.source[1])
        aligned = features if self.config.input == "bottleneck" else pooled
        return {
            "classification": F.cross_entropy(logits, batch.labels),
            "alignment": self.config.alpha * self.alignment(aligned, ramp_up(progress)),
        }
