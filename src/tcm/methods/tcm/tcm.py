"""TCM, the default form: the transport formula, TCM Eq. (1), evaluated directly on counterfactuals.

The formula sums P(Y | X, U = u) over the values of the confounder U. The paper evaluates the sum with a proxy function
h_y (`paper.py`). Here the counterfactuals themselves are the values: each inverse mechanism changes one factor of a
target image to the distribution of the source, and the sum is the mean prediction on the image and its counterfactuals.
Training makes these predictions agree.
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
    """TCM: counterfactuals of source images keep the label, and predictions on those of a target image must agree."""

    uses_counterfactuals: ClassVar[bool] = True

    source_views: int = 2
    """Counterfactuals of each source image in a step, by random mechanisms."""
    target_views: int = 2
    """Counterfactuals of each target image in a step, by random mechanisms."""
    plain: float = 0.5
    """Weight of the classification loss on source images."""
    counterfactual: float = 0.5
    """Weight of the classification loss on their counterfactuals, with the same label."""
    agreement: float = 1.0
    """Weight of the agreement loss: each view of a target image against the mean prediction of its views."""
    alignment: float = 1.0
    """Weight of the alignment loss. The factor of its reversed gradient grows with progress."""
    hidden: int = 1024
    """Width of the discriminator."""


class TCM(Method, config=TCMConfig):
    """Classification of source views, agreement of target views, and alignment of the views of both domains."""

    def __init__(self, problem: Problem, config: TCMConfig):
        super().__init__(problem, config)
        self.config = config
        self.alignment = ConditionalAlignment(config.recipe.bottleneck, problem.classes, config.hidden)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms by name. A view is an image or one of its counterfactuals; alignment is the loss of CDAN+E."""
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
        """The images of a step and random counterfactuals of each."""
        return sampled_views(batch, self.config.source_views, self.config.target_views)

    def answer(self, images: Tensor) -> Answer:
        """log P(Y | do(X)) of target images, TCM Eq. (1): the mean prediction on an image and its counterfactuals.

        Prediction variants: `fast`, the image alone; and each counterfactual alone.
        """
        views = with_counterfactuals(images, self.inverse_counterfactuals(images))
        features = self.features(views.flatten(0, 1))
        logits = self.classifier(features).unflatten(0, views.shape[:2])
        alone = {f"mechanism {number} alone": view for number, view in enumerate(logits[1:], start=1)}
        return Answer(averaged(logits), features[: len(images)], {"fast": logits[0], **alone})

    def answer_fast(self, images: Tensor) -> Answer:
        """The prediction on the image alone, which costs one pass of the backbone."""
        return super().answer(images)

    def class_scores(self, images: Tensor) -> Tensor:
        """The logits of each view, weighted by its share of the mean probability of the class: [batch, classes].

        The shares have no gradient, because the gradient of a probability near 1 vanishes; that of a logit does not.
        """
        views = with_counterfactuals(images, self.inverse_counterfactuals(images))
        logits = self.classifier(self.features(views.flatten(0, 1))).unflatten(0, views.shape[:2])
        shares = logits.detach().log_softmax(dim=-1).softmax(dim=0)
        return (shares * logits).sum(dim=0)


def averaged(logits: Tensor) -> Tensor:
    """The logarithm of the mean prediction over views, TCM Eq. (1): [views, batch, classes] -> [batch, classes]."""
    return logits.float().log_softmax(dim=-1).logsumexp(dim=0) - torch.tensor(float(len(logits))).log()
