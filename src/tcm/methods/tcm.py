"""TCM: counterfactuals as proxies of the confounder (Section 3.2), in the form that was measured to work.

The transport formula (Eq. 1) sums P(Y | X, U = u) over the confounder's values. Each inverse mechanism sets one factor
of a target image to the source's distribution, so the mean of the predictions on an image and on its counterfactuals
is that sum evaluated directly. It is the prediction, and in training the teacher of every single view.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.learner import Batch
from tcm.losses import agreement, domain_confusion
from tcm.methods.method import Method, Problem, Recipe
from tcm.nn.heads import discriminator, reverse_gradient
from tcm.schedules import ramp_up


@dataclass(frozen=True)
class TCMConfig:
    """Counterfactuals of both domains: source ones keep their label, target ones must agree."""

    uses_counterfactuals = True
    recipe: Recipe = field(default_factory=Recipe)
    counterfactual: float = 0.5
    """Share of the classification loss that falls on a source image's counterfactual."""
    agreement: float = 1.0
    """Weight of the agreement of a target image's views with the mean of their predictions."""
    sharpness: float = 2.0
    """Power that the mean prediction is raised to before the views learn from it; 1 leaves it as it is."""
    views: int = 2
    """Counterfactuals of a target image in a step, beside the image itself."""
    alignment: float = 1.0
    """Weight of the domain loss on features, counterfactuals included."""
    hidden: int = 1024
    """Width of the discriminator."""

    def build(self, problem: Problem) -> "TCM":
        """The method on the problem's backbone."""
        return TCM(problem, self)


class TCM(Method):
    """Labels through counterfactuals, agreement across them, alignment of both domains' views."""

    def __init__(self, problem: Problem, config: TCMConfig):
        super().__init__(problem, config.recipe)
        self.config = config
        self.discriminator = discriminator(config.recipe.bottleneck, config.hidden)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification, agreement and domain loss; the last two grow with progress."""
        config, made = self.config, batch.counterfactuals
        assert made is not None
        source = [batch.source, one_of_each(made.source)]
        target = [batch.target, *(one_of_each(made.target) for _ in range(config.views))]
        # All views in one pass: batch normalisation sees them together.
        features = self.features(torch.cat([*source, *target]))
        logits = self.classifier(features)
        labelled, unlabelled = logits.split([2 * len(batch.source), (1 + config.views) * len(batch.target)])
        plain, changed = (F.cross_entropy(part, batch.labels) for part in labelled.chunk(2))
        domains = self.discriminator(reverse_gradient(features, ramp_up(progress)))
        return {
            "classification": (1 - config.counterfactual) * plain + config.counterfactual * changed,
            "agreement": config.agreement
            * ramp_up(progress)
            * agreement(unlabelled.unflatten(0, (1 + config.views, -1)), config.sharpness),
            "domain": config.alignment * domain_confusion(*domains.split([len(labelled), len(unlabelled)])),
        }

    def predict(self, images: Tensor) -> Tensor:
        """log P(Y | do(X)): the mean over the image and its k inverse counterfactuals (Algorithm 2, Eq. 1 directly)."""
        views = torch.cat([images[None], self.inverse_counterfactuals(images)])
        logits = super().predict(views.flatten(0, 1)).unflatten(0, views.shape[:2])
        return logits.float().log_softmax(dim=-1).logsumexp(dim=0) - torch.tensor(float(len(views))).log()


def one_of_each(made: Tensor) -> Tensor:
    """A random one of each image's counterfactuals: [k, batch, ...] -> [batch, ...]."""
    k, batch = made.shape[:2]
    chosen = torch.randint(k, (batch,), device=made.device)
    return made[chosen, torch.arange(batch, device=made.device)]
