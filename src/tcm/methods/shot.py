"""SHOT: source hypothesis transfer (Liang, Hu and Feng, ICML 2020).

A run has two phases. In the first, the network learns the source alone, with smoothed labels. In the second it sees the
target alone: the classifier stays as it is, and backbone and bottleneck learn features with which its predictions are
certain and diverse (information maximisation), and agree with pseudo-labels. The pseudo-labels are the nearest class
centroids among all target images; they are computed several times, at fixed points of the second phase. As in the
paper, the bottleneck is a linear layer with batch normalisation, and the classifier has weight normalisation.

What differs from the authors' code: both phases belong to one run and have a fixed share of its steps, each with the
whole schedule of the learning rate. The authors adapt the epoch of the source phase that is best on 10 % of the source
images; here it is the last step, and all source images train. A step sees 32 images of one domain (authors: 64).
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.nn.heads import xavier_linear
from tcm.nn.losses import in_single, information_maximisation
from tcm.nn.schedules import inverse_decay

PASSES = 2  # of the centroids: the first from predictions, the second from the labels of the first


@dataclass(frozen=True)
class SHOTConfig(MethodConfig):
    """SHOT: learn the source, then fit the features of the target to the fixed classifier (Liang et al., 2020)."""

    authors_steps: ClassVar[int] = 4_000
    authors_batch: ClassVar[int] = 64

    source_share: float = 0.5
    """Share of the steps that learn the source. The others adapt to the target."""
    smoothing: float = 0.1
    """Share of the source labels that is spread over all classes."""
    information: float = 1.0
    """Weight of information maximisation."""
    pseudo_labels: float = 0.3
    """Weight of the cross-entropy with pseudo-labels."""
    refreshes: int = 15
    """How often the pseudo-labels are computed, at equal distances."""

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return cls(source_share=0.75)  # 50 epochs of the source and 15 of the target: 3,000 and 1,000 steps


class SHOT(Method, config=SHOTConfig):
    """Classification on the source, then information maximisation and pseudo-labels on the target."""

    training_only = ("labels", "refreshed")
    labels: Tensor | None  # [target images], the pseudo-labels
    refreshed: Tensor | None  # [], how often they were computed

    def __init__(self, problem: Problem, config: SHOTConfig):
        super().__init__(problem, config)
        self.config, self.target_images = config, problem.target
        width, total = config.recipe.bottleneck, problem.target.total if problem.target else None
        self.bottleneck = nn.Sequential(xavier_linear(problem.backbone.features, width), nn.BatchNorm1d(width))
        self.classifier = weight_norm(xavier_linear(width, problem.classes))
        self.register_buffer("labels", None if total is None else torch.zeros(total, dtype=torch.long))
        self.register_buffer("refreshed", None if total is None else torch.zeros((), dtype=torch.long))
        self.current: int | None = None  # `refreshed`, known without asking the device

    def place(self, progress: float) -> tuple[bool, float]:
        """Whether the run adapts to the target at this progress, and the progress within the phase."""
        share = self.config.source_share
        return (True, (progress - share) / (1 - share)) if progress >= share else (False, progress / share)

    def lr_factor(self, progress: float) -> float:
        """(1 + 10 p)^-0.75 at progress p of the phase."""
        return inverse_decay(self.place(progress)[1])

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """In the first phase the classification loss, in the second the terms of the target."""
        config = self.config
        if not self.place(progress)[0]:
            logits = self.classifier(self.features(batch.source))
            return {"classification": F.cross_entropy(logits, batch.labels, label_smoothing=config.smoothing)}
        logits = self.classifier(self.features(batch.target))
        found = {"information": config.information * information_maximisation(logits)}
        if self.labels is not None:
            assert batch.target_indices is not None
            labels = self.labels[batch.target_indices]
            found["pseudo_labels"] = config.pseudo_labels * F.cross_entropy(logits, labels)
        return found

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One gradient step; before it, new pseudo-labels if it is time. The second phase keeps the classifier."""
        adapting, within = self.place(progress)
        self.classifier.requires_grad_(not adapting)
        if adapting and self.refreshed is not None:
            if self.current is None:
                self.current = int(self.refreshed)
            if self.current == 0:
                for optimizer in optimizers.values():
                    optimizer.state.clear()
            due = 1 + min(int(within * self.config.refreshes), self.config.refreshes - 1)
            if due > self.current:
                self.refresh(due)
        return super().update(batch, progress, optimizers)

    @torch.no_grad()
    def refresh(self, number: int) -> None:
        """Computes the pseudo-labels of all target images."""
        assert self.target_images is not None
        assert self.labels is not None
        assert self.refreshed is not None
        self.eval()
        features = in_single(self.target_images.features(self)).to(self.labels.device)
        with torch.autocast(features.device.type, enabled=False):
            self.labels.copy_(centroid_labels(features, self.classifier(features).softmax(dim=1)))
        self.refreshed.fill_(number)
        self.current = number
        self.train()


def centroid_labels(features: Tensor, classes: Tensor) -> Tensor:
    """The nearest class centroid of every image: [n] from features [n, width] and probabilities [n, classes].

    Liang et al. (2020), Section 3.3, by the cosine of features to which a 1 is appended, as in the authors' code. The
    first centroids are means weighted by the probabilities, the second are means of the images that are nearest to each
    of the first. A class that no image has is left out.
    """
    extended = F.normalize(F.pad(features, (0, 1), value=1.0), dim=1)
    labels, shares = classes.argmax(dim=1), classes
    for _ in range(PASSES):
        missing = F.one_hot(labels, classes.shape[1]).sum(dim=0) == 0
        cosines = extended @ F.normalize(shares.T @ extended, dim=1).T
        labels = cosines.masked_fill(missing, -torch.inf).argmax(dim=1)
        shares = F.one_hot(labels, classes.shape[1]).to(extended.dtype)
    return labels
