"""ATDOC-NA: an auxiliary target classifier by neighbourhood aggregation (Liang, Hu and Feng, CVPR 2021).

A memory has the features and the sharpened predictions of all target images. The pseudo-label of a target image is the
class with the largest mean prediction among its nearest neighbours in the memory, and that mean is its weight. The
objective is the cross-entropy with smoothed labels on source images plus p times the weighted cross-entropy of target
images with their pseudo-labels, where p is the progress. After every step the images of the batch are passed through
the network once more, in evaluation mode, and replace their rows of the memory, as in the authors' code.

What differs from the authors' code: the memory starts with features of 0, which no image is near to, where theirs are
random; both domains go through the network in one pass; the bottleneck has batch normalisation and ReLU, as in the
other methods here. `separate_passes` and `plain_bottleneck` are the authors' forms.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.methods.tcm.views import features_of
from tcm.nn.heads import xavier_linear
from tcm.nn.losses import in_single


@dataclass(frozen=True)
class ATDOCConfig(MethodConfig):
    """ATDOC-NA: target images learn the class of their nearest neighbours in the target (Liang et al., 2021)."""

    authors_steps: ClassVar[int] = 6_000
    authors_batch: ClassVar[int] = 36

    trade_off: float = 0.2
    """Weight of the pseudo-label loss at the end of training. It grows in proportion to progress."""
    neighbours: int = 5
    """Number of nearest neighbours."""
    smoothing: float = 0.1
    """Share of the source labels that is spread over all classes."""
    separate_passes: bool = False
    """Pass source and target images through the network one kind at a time, as in the authors' code."""
    plain_bottleneck: bool = False
    """Let the bottleneck be a linear layer alone, as in the authors' code."""

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return cls(separate_passes=True, plain_bottleneck=True)


class ATDOC(Method, config=ATDOCConfig):
    """Classification on the source, plus pseudo-labels of target images by their neighbours in a memory."""

    training_only = ("memory", "votes")
    memory: Tensor | None  # [target images, bottleneck], features of length 1; 0 before an image was seen
    votes: Tensor | None  # [target images, classes], sharpened predictions

    def __init__(self, problem: Problem, config: ATDOCConfig):
        super().__init__(problem, config)
        self.config, classes, width = config, problem.classes, config.recipe.bottleneck
        if config.plain_bottleneck:
            self.bottleneck = nn.Sequential(xavier_linear(problem.backbone.features, width))
            self.classifier = xavier_linear(width, classes)
        total = problem.target.total if problem.target else None
        self.register_buffer("memory", None if total is None else torch.zeros(total, width))
        self.register_buffer("votes", None if total is None else torch.full((total, classes), 1 / classes))

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss and, in a run with target images, the loss of the neighbours' labels."""
        config = self.config
        source, target = features_of(self.features, [batch.source, batch.target], config.separate_passes)
        found = {
            "classification": F.cross_entropy(self.classifier(source), batch.labels, label_smoothing=config.smoothing)
        }
        if self.memory is not None and self.votes is not None:
            assert batch.target_indices is not None
            near = nearest(target.detach(), self.memory, batch.target_indices, config.neighbours)
            weights, labels = self.votes[near].mean(dim=1).max(dim=1)
            each = F.cross_entropy(in_single(self.classifier(target)), labels, reduction="none")
            found["neighbours"] = config.trade_off * progress * (weights * each).sum() / weights.sum()
        return found

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One gradient step, after which the memory has the target images of the batch as the network sees them now."""
        losses = super().update(batch, progress, optimizers)
        if self.memory is not None:
            self.eval()
            self.remember(batch)
            self.train()
        return losses

    @torch.no_grad()
    def remember(self, batch: Batch) -> None:
        """Writes the target images of the batch into the memory, in evaluation mode."""
        assert self.memory is not None
        assert self.votes is not None
        assert batch.target_indices is not None
        logits, features, _ = self.answer(batch.target)
        indices, last = batch.target_indices, last_places(batch.target_indices)
        self.memory[indices] = F.normalize(in_single(features), dim=1)[last]
        self.votes[indices] = sharpened(in_single(logits).softmax(dim=1))[last]


def nearest(features: Tensor, memory: Tensor, own: Tensor, count: int) -> Tensor:
    """The rows of the memory [n, width] with the largest cosine to each of the features [batch, width].

    `own` [batch] are the rows of the images themselves, which are left out. The result is [batch, count], or one less
    than n where the memory is so small.
    """
    with torch.autocast(features.device.type, enabled=False):
        similar = in_single(features) @ memory.T
    return similar.scatter(1, own[:, None], -torch.inf).topk(min(count, len(memory) - 1), dim=1).indices


def last_places(indices: Tensor) -> Tensor:
    """The last place in the batch of the image at each place: [batch], from the numbers of the images [batch].

    If an image is in a batch twice, two rows of the batch are written to one of the memory. Which of them stays would
    depend on the device.
    """
    places = torch.arange(len(indices), device=indices.device)
    return ((indices[:, None] == indices) * places).argmax(dim=1)


def sharpened(classes: Tensor) -> Tensor:
    """Squares of probabilities [batch, classes], divided by the sum over the batch of each class.

    The sharpening and class balance of ATDOC, Liang et al. (2021), as in the authors' code: confident predictions count
    more, and so do classes that are rare in the batch. The rows do not sum to 1.
    """
    squares = classes.square()
    return squares / squares.sum(dim=0).clamp_min(torch.finfo(classes.dtype).tiny)
