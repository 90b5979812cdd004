"""A2LP on frozen features: label propagation from the features of the pretrained backbone, without training.

This is what the published code of A2LP does (Zhang et al., 2020). It labels the target images that it is given, and
cannot predict others. Here the centroids of the classes among the labelled target images then predict any image.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tcm.data.batch import Batch
from tcm.methods.frozen import FrozenMethod
from tcm.methods.method import Answer, MethodConfig, Problem
from tcm.methods.tcm.centroids import CentroidClassifier
from tcm.nn.label_propagation import PropagationConfig, confidence, propagated_labels
from tcm.nn.losses import in_single

VARIANT = "label propagation"  # the name of the propagated labels among the prediction variants


class LabelledTarget(NamedTuple):
    """What label propagation finds."""

    probabilities: Tensor  # [target images, classes]
    features: Tensor  # [target images, width]


class Propagation:
    """Label propagation on all images of a problem."""

    def __init__(self, problem: Problem, config: PropagationConfig):
        self.config, self.classes, self.task_features = config, problem.classes, problem.task_features
        self.no_labels = torch.zeros(problem.target.total, problem.classes) if problem.target else None

    @property
    def possible(self) -> bool:
        """Whether there are images; a model that was saved has none."""
        return self.task_features is not None

    def __call__(
        self, network: nn.Module, used: Callable[[Tensor], Tensor] = lambda features: features
    ) -> LabelledTarget:
        """Labels all target images by the features of this network, which must be in evaluation mode.

        `used` of the features are those that count.
        """
        assert self.task_features is not None, "there are no images"
        source, labels, target = self.task_features(network)
        target = used(target)
        found = propagated_labels(used(source), labels, target, self.classes, self.config)
        return LabelledTarget(found, in_single(target))


class FrozenA2LP(FrozenMethod):
    """Label propagation in the first step, on the features of the backbone, and then its class centroids."""

    training_only = ("propagated",)
    propagated: Tensor | None  # [target images, classes], probabilities

    def __init__(self, problem: Problem, config: MethodConfig, propagation: PropagationConfig):
        super().__init__(problem, config)
        self.propagation = Propagation(problem, propagation)
        self.centroids = CentroidClassifier(problem.classes, problem.backbone.features)
        self.register_buffer("propagated", self.propagation.no_labels)

    @property
    def fitted(self) -> bool:
        """Whether the target images are labelled."""
        return self.centroids.fitted

    def fit(self) -> None:
        """Labels all target images."""
        assert self.propagated is not None
        found = self.propagation(self.backbone, self.means)
        self.propagated.copy_(found.probabilities)
        self.centroids.fit(found.features, found.probabilities)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """How uncertain the propagated labels are. Nothing minimises it."""
        assert self.propagated is not None
        return {"uncertainty": 1 - confidence(self.propagated).mean()}

    def answer_of(self, features: Tensor) -> Answer:
        """The cosines with the class centroids; before the first step they are all 0."""
        means = self.means(features)
        return Answer(self.centroids(means), means)

    def found_in_training(self) -> dict[str, Tensor]:
        """The propagated labels."""
        return {} if self.propagated is None else {VARIANT: self.propagated}
