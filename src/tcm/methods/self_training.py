"""Self-training on frozen features: nothing of the backbone is trained, so no GPU is needed.

Three things make labels that come from frozen features better:

- **Each domain is standardised.** A feature of the backbone has another mean and scale in drawings than in photographs.
  From every domain's features their mean is subtracted, and they are divided by their standard deviation.
- **Labels come from two sides.** Label propagation (`nn/label_propagation.py`) follows the groups of the target, and a
  linear classifier follows the classes of the source. The mean of both probabilities is divided by the mean
  prediction of each class, so that no class takes over.
- **Rounds.** In round r of R, the share r / R of the target images with the most confident labels joins the source, and
  both are fitted again, as in GSDE (Westfechtel et al., 2024), which trains a network in every round.

The linear classifier of the last round predicts any image.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.methods.frozen_erm import FrozenERM
from tcm.methods.method import MethodConfig, Problem
from tcm.methods.tcm.pseudo_labels import divided_by
from tcm.nn.label_propagation import PropagationConfig, propagated_labels
from tcm.nn.losses import in_single


@dataclass(frozen=True)
class SelfTrainingConfig(MethodConfig):
    """Self-training on pretrained features: a linear classifier and label propagation; the backbone is not trained."""

    rounds: int = 5
    """How often the classifier and the labels of the target are fitted anew, each time with more target images."""
    propagation: PropagationConfig = field(default_factory=PropagationConfig)

    @property
    def trains(self) -> bool:
        """Whether the method trains a network."""
        return False


class Standardisation(NamedTuple):
    """The mean and the standard deviation of each feature in one domain: [width] each."""

    mean: Tensor
    sd: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Standardised features [n, width], scaled to length 1."""
        return F.normalize((features - self.mean) / self.sd, dim=1)


class SelfTraining(FrozenERM, config=SelfTrainingConfig):
    """A linear classifier of standardised features, fitted to the source and to labels that it gave to the target."""

    mean: Tensor  # [width], of the target's features
    sd: Tensor

    def __init__(self, problem: Problem, config: SelfTrainingConfig):
        super().__init__(problem, config)
        self.config = config
        for name, value in (("mean", torch.zeros), ("sd", torch.ones)):
            self.register_buffer(name, value(problem.backbone.features))

    def fit(self) -> None:
        """Labels all target images and fits the classifier, in all rounds."""
        assert self.task_features is not None, "there are no images"
        source, labels, target = self.task_features(self.backbone)
        to_target = standardisation(target)
        self.mean.copy_(to_target.mean)
        self.sd.copy_(to_target.sd)
        source, target = standardisation(source)(source), to_target(target)

        def propagated(points: Tensor, of_points: Tensor) -> Tensor:
            return propagated_labels(points, of_points, target, self.linear.out_features, self.config.propagation)

        found = propagated(source, labels)
        for number in range(1, self.config.rounds + 1):
            chosen = most_confident(found, number / self.config.rounds)
            given, of_given = torch.cat([source, target[chosen]]), torch.cat([labels, found[chosen].argmax(dim=1)])
            self.fit_linear(given, of_given)
            if number < self.config.rounds:
                mean = (self.linear(target).softmax(dim=1) + propagated(given, of_given)) / 2
                found = divided_by(mean.mean(dim=0), mean)

    def normalised(self, features: Tensor) -> Tensor:
        """Features [batch, width], standardised as those of the target: the classifier is for target images."""
        return Standardisation(self.mean, self.sd)(features)


def standardisation(features: Tensor) -> Standardisation:
    """The standardisation of a domain with these features [n, width]. Features that hardly vary are not blown up."""
    features = in_single(features)
    sd = features.std(dim=0, correction=0)
    return Standardisation(features.mean(dim=0), (sd + 1e-3 * sd.mean()).clamp_min(1e-12))


def most_confident(probabilities: Tensor, share: float) -> Tensor:
    """The numbers of this share of the rows [n, classes], those with the highest confidence, at least one."""
    count = max(1, round(share * len(probabilities)))
    return probabilities.amax(dim=1).argsort(descending=True, stable=True)[:count]
