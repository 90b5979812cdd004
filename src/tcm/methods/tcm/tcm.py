"""TCM, the default form: the transport formula evaluated directly on counterfactuals.

The transport formula, TCM Eq. (1), sums P(Y | X, U = u) over the values of the confounder U. The paper evaluates the
sum by a proxy function h_y (`paper.py`). Each inverse mechanism sets one factor of a target image to the source's
distribution, so the mean of the predictions on an image and on its counterfactuals is that sum evaluated directly.
Training makes the predictions agree across counterfactuals, and prediction takes their mean.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Answer, Method, MethodConfig, Problem
from tcm.methods.tcm.alignment import ConditionalAlignment
from tcm.methods.tcm.views import Views, sampled_views, with_counterfactuals
from tcm.nn.losses import agreement
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class TCMConfig(MethodConfig):
    """TCM: source counterfactuals keep their label, and the predictions on target counterfactuals must agree."""

    uses_counterfactuals: ClassVar[bool] = True

    source_views: int = 2
    """Counterfactuals of a source image in a step, by mechanisms drawn at random."""
    target_views: int = 2
    """Counterfactuals of a target image in a step, by mechanisms drawn at random."""
    plain: float = 0.5
    """Weight of the classification of source images."""
    counterfactual: float = 0.5
    """Weight of the classification of their counterfactuals, under the same label."""
    agreement: float = 1.0
    """Weight of the agreement of a target image's views with the mean of their predictions."""
    alignment: float = 1.0
    """Weight of the discriminator's loss; its reversed gradient grows with progress."""
    hidden: int = 1024
    """Width of the discriminator."""


class TCM(Method, config=TCMConfig):
    """Labels through counterfactuals, agreement across them, and alignment of both domains' views."""

    def __init__(self, problem: Problem, config: TCMConfig):
        super().__init__(problem, config)
        self.config = config
        self.alignment = ConditionalAlignment(config.recipe.bottleneck, problem.classes, config.hidden)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification of source views; agreement of target views; alignment of all views, CDAN+E's loss."""
        config, grown = self.config, ramp_up(progress)
        # All views in one pass: batch normalisation sees them together.
        views = self.views(batch)
        features = views.like(self.features(views.flat))
        logits = features.like(self.classifier(features.flat))
        image, counterfactuals = logits.source[0], logits.source[1:]
        labels = batch.labels.repeat(len(counterfactuals))
        return {
            "classification": config.plain * F.cross_entropy(image, batch.labels)
            + config.counterfactual * F.cross_entropy(counterfactuals.flatten(0, 1), labels),
            "agreement": config.agreement * grown * agreement(logits.target),
            "alignment": config.alignment * self.alignment(features, logits, grown),
        }

    def views(self, batch: Batch) -> Views:
        """The images of a step and some of their counterfactuals."""
        return sampled_views(batch, self.config.source_views, self.config.target_views)

    def answer(self, images: Tensor) -> Answer:
        """log P(Y | do(X)) of target images, TCM Eq. (1): the mean over an image and its counterfactuals.

        Variants: `fast`, the image alone, and each counterfactual alone.
        """
        views = with_counterfactuals(images, self.inverse_counterfactuals(images))
        features = self.features(views.flatten(0, 1))
        logits = self.classifier(features).unflatten(0, views.shape[:2])
        alone = {f"mechanism {number} alone": view for number, view in enumerate(logits[1:], start=1)}
        return Answer(averaged(logits), features[: len(images)], {"fast": logits[0], **alone})

    def answer_fast(self, images: Tensor) -> Answer:
        """The image alone, at the cost of the bare backbone."""
        return super().answer(images)

    def class_scores(self, images: Tensor) -> Tensor:
        """The logits of each view, weighted by its share of the class's averaged probability.

        A probability near 1 has next to no gradient, so the shares are constants and the logits are differentiated.
        """
        views = with_counterfactuals(images, self.inverse_counterfactuals(images))
        logits = self.classifier(self.features(views.flatten(0, 1))).unflatten(0, views.shape[:2])
        shares = logits.detach().log_softmax(dim=-1).softmax(dim=0)
        return (shares * logits).sum(dim=0)


def averaged(logits: Tensor) -> Tensor:
    """The logarithm of the mean prediction over views: [views, batch, classes] -> [batch, classes], TCM Eq. (1)."""
    return logits.float().log_softmax(dim=-1).logsumexp(dim=0) - torch.tensor(float(len(logits))).log()
