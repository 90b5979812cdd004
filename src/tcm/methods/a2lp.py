"""A2LP: label propagation with augmented anchors (Zhang, Deng, Jia and Zhang, ECCV 2020).

A2LP labels all target images at once, from the features and labels of all source images (`nn/label_propagation.py`). It
has two uses. By default it gives the pseudo-labels of a method that learns features, MSTN (Xie, Zheng, Chen and Chen,
ICML 2018): DANN, plus the squared distance between the centroids of each class in both domains,

    mean over classes and features of (c_s - c_t)^2, where c is a moving average over batches.

With `frozen` nothing is trained, as in the authors' published code: see `frozen_a2lp.py`. In both forms the propagated
labels themselves are the prediction variant "label propagation".

The code of A2LP has no training, and that of MSTN is for AlexNet. What differs from them:

- New labels come at fixed points of progress, not every epoch.
- A class that is not in a batch keeps its centroid, which in MSTN's code moves towards 0, and a class counts only after
  it was seen in both domains.
- The domain loss is that of DANN here. MSTN gives it a weight of 0.1.
- The solver of A2LP goes on to a smaller error.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.methods.dann import DANN, DANNConfig
from tcm.methods.frozen_a2lp import VARIANT, FrozenA2LP, Propagation
from tcm.methods.method import Method, Problem, Recipe
from tcm.nn.centroids import centroid_distance, moving_centroids
from tcm.nn.label_propagation import PropagationConfig, confidence
from tcm.nn.losses import in_single
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class A2LPConfig(DANNConfig):
    """A2LP: DANN that aligns class centroids, with target labels by label propagation (Zhang et al., 2020)."""

    authors_batch: ClassVar[int] = 64

    frozen: bool = False
    """Label the whole target domain from the features of the pretrained backbone, without training it."""
    labellings: int = 10
    """How often training labels all target images anew, at equal distances from the start on."""
    propagation: PropagationConfig = field(default_factory=PropagationConfig)
    centroids: float = 1.0
    """Weight of the distance between class centroids. A factor of it grows with progress."""
    centroid_momentum: float = 0.7
    """Share of the former centroid in the moving average."""
    threshold: float = 0.7
    """Smallest confidence of a target label that is used, at the start. It falls to 0 with progress."""

    @property
    def trains(self) -> bool:
        """Whether the method trains a network."""
        return not self.frozen

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return replace(cls(), recipe=Recipe(weight_decay=1e-4))

    def build(self, problem: Problem) -> Method:
        """The method that trains, or the frozen one."""
        return FrozenA2LP(problem, self, self.propagation) if self.frozen else A2LP(problem, self)


class A2LP(DANN, config=A2LPConfig):
    """DANN, plus the distance between class centroids, of which those of the target have propagated labels."""

    training_only = ("propagated",)
    labelled: Tensor  # [], how many labellings there were
    propagated: Tensor | None  # [target images, classes], probabilities
    source_centroids: Tensor  # [classes, bottleneck], 0 for a class that was not seen yet
    target_centroids: Tensor

    def __init__(self, problem: Problem, config: A2LPConfig):
        super().__init__(problem, config)
        self.config, self.classes, self.propagation = config, problem.classes, Propagation(problem, config.propagation)
        for name in ("source_centroids", "target_centroids"):
            self.register_buffer(name, torch.zeros(problem.classes, config.recipe.bottleneck))
        self.register_buffer("propagated", self.propagation.no_labels)
        self.register_buffer("labelled", torch.zeros((), dtype=torch.long))
        self.current: int | None = None  # `labelled`, known without asking the device

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms by name, from one pass."""
        features = self.features(torch.cat([batch.source, batch.target]))
        source, target = in_single(features).tensor_split([len(batch.labels)])
        with torch.no_grad():
            labels = F.one_hot(batch.labels, self.classes).to(source.dtype)
            target_labels = self.target_labels(features[len(labels) :], batch.target_indices, progress)
        momentum = self.config.centroid_momentum
        source = moving_centroids(self.source_centroids, source, labels, momentum)
        target = moving_centroids(self.target_centroids, target, target_labels, momentum)
        if self.training:
            self.source_centroids.copy_(source.detach())
            self.target_centroids.copy_(target.detach())
        weight = self.config.centroids * ramp_up(progress)
        return {
            **self.terms(features, batch.labels, progress),
            "centroids": weight * centroid_distance(source, target),
        }

    def target_labels(self, features: Tensor, indices: Tensor | None, progress: float) -> Tensor:
        """One-hot labels [batch, classes] of target images; a row is 0 where the label is not confident.

        They are propagated labels, or before any labelling those of the classifier, as in MSTN.
        """
        if self.propagated is None or not self.current:
            return F.one_hot(self.classifier(features).argmax(dim=1), self.classes).float()
        assert indices is not None
        found = self.propagated[indices]
        kept = confidence(found) > self.config.threshold * (1 - progress)
        return F.one_hot(found.argmax(dim=1), self.classes) * kept[:, None].to(found.dtype)

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One gradient step; before it, new target labels if it is time for them."""
        if self.current is None:
            self.current = int(self.labelled)
        number = 1 + min(int(progress * self.config.labellings), self.config.labellings - 1)
        if number > self.current and self.propagation.possible:
            self.label_target()
            self.current = number
            self.labelled.fill_(number)
        return super().update(batch, progress, optimizers)

    def label_target(self) -> None:
        """Labels all target images from the features of the backbone."""
        assert self.propagated is not None
        training = self.training
        self.eval()
        self.propagated.copy_(self.propagation(self.backbone).probabilities)
        self.train(training)

    def conclude(self, target: Iterable[Tensor], source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Labels all target images with the features of the last step."""
        if self.propagation.possible:
            self.label_target()

    def found_in_training(self) -> dict[str, Tensor]:
        """The propagated labels."""
        return {} if self.propagated is None else {VARIANT: self.propagated}
