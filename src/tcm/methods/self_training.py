"""Self-training on frozen features: nothing of the backbone is trained, so no GPU is needed.

Four things make labels that come from frozen features better:

- **Mean and maximum.** The features are the mean and the maximum of each channel over the positions in the image. The
  mean tells how much of the image looks like something, the maximum whether any part of it does.
- **Each domain is normalised by itself.** A feature of the backbone has another mean and scale in drawings than in
  photographs, and some directions vary so much that they hide all others. From every domain's features their mean is
  subtracted, they are divided by their standard deviation, and the directions of largest variance are shrunk.
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

from tcm.methods.frozen_erm import FrozenERM, LinearClassifier, logistic_regression
from tcm.methods.method import MethodConfig, Problem, TaskFeatures
from tcm.methods.tcm.pseudo_labels import divided_by
from tcm.nn.label_propagation import PropagationConfig, propagated_labels
from tcm.nn.losses import in_single

DIRECTIONS = 256  # of largest variance, which are shrunk; the variance of the others is too small to matter


@dataclass(frozen=True)
class SelfTrainingConfig(MethodConfig):
    """Self-training on pretrained features: a linear classifier and label propagation; the backbone is not trained."""

    rounds: int = 5
    """How often the classifier and the labels of the target are fitted anew, each time with more target images."""
    shrinkage: float = 30.0
    """Directions in the space of features are shrunk if their variance is large against so many times the mean
    variance. A small number makes all directions equal, a large one leaves them as they are."""
    propagation: PropagationConfig = field(default_factory=PropagationConfig)

    @property
    def trains(self) -> bool:
        """Whether the method trains a network."""
        return False


class Moments(NamedTuple):
    """What normalises the features of a domain, of width w."""

    mean: Tensor  # [w]
    sd: Tensor  # [w]
    centre: Tensor  # [w], the mean of the standardised features
    directions: Tensor  # [w, DIRECTIONS], of length 1 and at right angles: those of largest variance
    factors: Tensor  # [DIRECTIONS], by which the length of the features along each of them is multiplied

    def __call__(self, features: Tensor) -> Tensor:
        """Normalised features [n, w], scaled to length 1."""
        points = F.normalize((features - self.mean) / self.sd, dim=1) - self.centre
        along = points @ self.directions
        return F.normalize(points + (along * (self.factors - 1)) @ self.directions.T, dim=1)


class SelfTrained(NamedTuple):
    """What self-training finds."""

    moments: Moments  # of the target
    classifier: LinearClassifier  # of features that are normalised by them
    probabilities: Tensor  # [target images, classes], by this classifier


class SelfTraining(FrozenERM, config=SelfTrainingConfig):
    """A linear classifier of normalised features, fitted to the source and to labels that it gave to the target."""

    def __init__(self, problem: Problem, config: SelfTrainingConfig):
        super().__init__(problem, config)
        self.config = config
        for name, value in unit_moments(self.backbone.width)._asdict().items():
            self.register_buffer(f"target_{name}", value)

    @property
    def used_width(self) -> int:
        """How many features the classifier sees: means and maxima."""
        return self.backbone.width

    def fit(self) -> None:
        """Labels all target images and fits the classifier, in all rounds."""
        assert self.task_features is not None, "there are no images"
        found = self_trained(self.task_features(self.backbone), self.linear.out_features, self.config)
        for name, value in found.moments._asdict().items():
            self.get_buffer(f"target_{name}").copy_(value)
        self.set_linear(found.classifier)

    def normalised(self, features: Tensor) -> Tensor:
        """Features [batch, width], normalised as those of the target: the classifier is for target images."""
        return Moments(*(self.get_buffer(f"target_{name}") for name in Moments._fields))(features)


def self_trained(features: TaskFeatures, classes: int, config: SelfTrainingConfig) -> SelfTrained:
    """The classifier of a target, from features of both domains and the labels of the source."""
    labels, of_target = features.labels, moments(features.target, config.shrinkage)
    source, target = moments(features.source, config.shrinkage)(features.source), of_target(features.target)

    def propagated(points: Tensor, of_points: Tensor) -> Tensor:
        return propagated_labels(points, of_points, target, classes, config.propagation)

    def with_most_confident(found: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """The source and this share of the target, and their labels."""
        chosen = most_confident(found, share)
        return torch.cat([source, target[chosen]]), torch.cat([labels, found[chosen].argmax(dim=1)])

    found = propagated(source, labels)
    for number in range(1, config.rounds):
        given = with_most_confident(found, number / config.rounds)
        mean = (logistic_regression(*given, classes).probabilities(target) + propagated(*given)) / 2
        found = divided_by(mean.mean(dim=0), mean)
    classifier = logistic_regression(*with_most_confident(found, share=1), classes)
    return SelfTrained(of_target, classifier, classifier.probabilities(target))


def unit_moments(width: int) -> Moments:
    """Moments that leave features as they are, except for their length."""
    mean, sd, centre = torch.zeros(width), torch.ones(width), torch.zeros(width)
    return Moments(mean, sd, centre, torch.zeros(width, DIRECTIONS), torch.ones(DIRECTIONS))


@torch.no_grad()
def moments(features: Tensor, shrinkage: float) -> Moments:
    """The moments of a domain with these features [n, w]. Features that hardly vary are not blown up.

    Along a direction of variance v, features are multiplied by sqrt(s / (v + s)), where s is `shrinkage` times the mean
    variance of the directions that the features vary in. This is whitening by the covariance plus s I, up to a factor.
    """
    features = in_single(features)
    mean, sd = features.mean(dim=0), features.std(dim=0, correction=0)
    sd = (sd + 1e-3 * sd.mean()).clamp_min(1e-12)
    points = F.normalize((features - mean) / sd, dim=1)
    centre = points.mean(dim=0)
    variances, directions = principal_directions(points - centre)
    least = shrinkage * variances.sum() / len(variances)
    found = unit_moments(len(mean))
    count = min(DIRECTIONS, len(variances))
    factors, kept = (part.to(points) for part in (found.factors, found.directions))
    factors[:count] = (least / (variances + least).clamp_min(1e-12)).sqrt().flip(0)[:count]
    kept[:, :count] = directions.flip(1)[:, :count]
    return Moments(mean, sd, centre, kept, factors)


def principal_directions(points: Tensor) -> tuple[Tensor, Tensor]:
    """The variances [m] of centred points [n, w] along their principal directions [w, m], in ascending order.

    m is the smaller of n and w, so that a few points with many features are no more work than they need.
    """
    count, width = points.shape
    if width <= count:
        variances, directions = torch.linalg.eigh(points.T @ points / count)
        return variances.clamp_min(0), directions
    variances, shares = torch.linalg.eigh(points @ points.T / count)
    return variances.clamp_min(0), F.normalize(points.T @ shares, dim=0)


def most_confident(probabilities: Tensor, share: float) -> Tensor:
    """The numbers of this share of the rows [n, classes], those with the highest confidence, at least one."""
    count = max(1, round(share * len(probabilities)))
    return probabilities.amax(dim=1).argsort(descending=True, stable=True)[:count]
