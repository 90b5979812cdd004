"""The paper's Baseline (TCM Section 4.2): domain mapping with one mechanism, a CycleGAN."""

from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch.nn.functional as F
from torch import Tensor, nn

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem, Recipe
from tcm.methods.tcm.alignment import PredictionAlignment
from tcm.methods.tcm.views import features_of
from tcm.nn.heads import initialise_kaiming
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class BaselineConfig(MethodConfig):
    """Baseline: a classifier on source images that one mechanism transported to the target (TCM Section 4.2)."""

    uses_counterfactuals: ClassVar[bool] = True
    number_of_mechanisms: ClassVar[int | None] = 1

    recipe: Recipe = field(default_factory=lambda: Recipe(lr=3e-3))
    """The optimiser. The learning rate is that of the authors' code."""
    alpha: float = 1.0
    """Weight of the alignment loss. The factor of its reversed gradient grows with progress."""
    hidden: int = 1024
    """Width of the discriminator."""
    dropout: float = 0.5
    """Dropout in the discriminator."""
    separate_passes: bool = True
    """Pass each kind of image through the backbone on its own, as in the authors' code: batch normalisation then sees
    transported source images and target images one kind at a time."""

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings; the small network has the learning rate of the other methods, and one pass."""
        return cls(recipe=Recipe(), separate_passes=False) if small else cls()


class Baseline(Method, config=BaselineConfig):
    """Classification of transported source images, and alignment of its predictions with those on target images.

    By the text of the paper the loss of TCM Eq. (10) aligns features. But the 1.1 M parameters in its appendix fit only
    one discriminator of class probabilities, as in the authors' code, which is followed here.
    """

    def __init__(self, problem: Problem, config: BaselineConfig):
        super().__init__(problem, config)
        del self.bottleneck
        self.config = config
        self.classifier = nn.Linear(problem.backbone.features, problem.classes).apply(initialise_kaiming)
        self.alignment = PredictionAlignment(problem.classes, config.hidden, config.dropout)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Cross-entropy on the transported source images M(x_s), and the domain loss of M(x_s) against x_t."""
        assert batch.counterfactuals is not None
        (transported,) = batch.counterfactuals.source
        kinds = features_of(self.backbone, (transported, batch.target), self.config.separate_passes)
        on_transported, on_target = (self.classifier(features) for features in kinds)
        return {
            "classification": F.cross_entropy(on_transported, batch.labels),
            "alignment": self.config.alpha * self.alignment(on_transported, on_target, ramp_up(progress)),
        }

    def features(self, images: Tensor) -> Tensor:
        """The input of the classifier: [batch, features of the backbone]."""
        return self.backbone(images)
