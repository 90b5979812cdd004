"""TCM, the default form: the transport formula, TCM Eq. (1), put into the network by training.

The formula sums P(Y | X, U = u) over the values u of the confounder U. The paper evaluates the sum for every
prediction, with a proxy function h_y (`paper.py`). Here the counterfactuals of an image are the values: each mechanism
changes one factor of the image to the distribution of the other domain. Training shows the network random values, and
it must give the same answer for all of them. So its prediction on the image alone is the sum, and costs one pass of the
backbone.

Source images have labels. Target images get pseudo-labels: a confident prediction on a target image teaches the
strongly augmented view of the image or of its counterfactual. After the last step, the centroids of the classes among
all target images replace the linear classifier.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Answer, Method, MethodConfig, Problem, Recipe
from tcm.methods.tcm.centroids import CentroidClassifier
from tcm.methods.tcm.pseudo_labels import PseudoLabeller, PseudoLabels, divided_by
from tcm.nn.losses import class_confusion, in_single
from tcm.nn.schedules import inverse_decay, ramp_up


@dataclass(frozen=True)
class TCMConfig(MethodConfig):
    """TCM: labels and pseudo-labels teach strongly augmented views of images and of their counterfactuals."""

    uses_counterfactuals: ClassVar[bool] = True
    default_steps: ClassVar[int] = 4_000  # 10,000 are not better on Office-Home: docs/results/default.md

    recipe: Recipe = field(default_factory=lambda: Recipe(bottleneck=2048))
    rounds: int = 2
    """Parts of the training. Each starts again from the initial weights, with the labels of the part before it."""
    counterfactuals: float = 0.5
    """Share of the strong views that start from a counterfactual of the image, by a random mechanism."""
    counterfactuals_of: Literal["both", "source", "target"] = "both"
    """Whose strong views start from counterfactuals: those of both domains or of one."""
    only_useful: bool = True
    """Leave out mechanisms that never win, make the same images as another one, change nothing, or make images that are
    blank or not recognised; with pretrained weights also those that do not bring images nearer to the other domain, to
    at most 0.9 of the Frechet distance. If this is off, all mechanisms are used."""
    weak: float = 0.5
    """Weight of the classification loss on source images."""
    strong: float = 0.5
    """Weight of the classification loss on strong views of source images."""
    confusion: float = 1.0
    """Weight of the class confusion loss on target images."""
    temperature: float = 2.5
    """Temperature of the predictions in the class confusion loss."""
    pseudo_labels: float = 1.0
    """Weight of the pseudo-label loss on strong views of target images."""
    threshold: float = 0.95
    """Smallest confidence of a pseudo-label."""
    momentum: float = 0.98
    """Momentum of the running mean of predictions, by which pseudo-labels are divided."""

    @property
    def strong_counterfactuals(self) -> float:
        """The share of strong views that start from a counterfactual."""
        return self.counterfactuals

    @property
    def only_useful_mechanisms(self) -> bool:
        """Whether mechanisms that fail the judgement are left out."""
        return self.only_useful

    def usable(self, mechanisms: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
        """Of these mechanisms for source and for target images, those whose counterfactuals strong views start from."""
        source, target = mechanisms
        given = self.counterfactuals_of
        return ([] if given == "target" else source, [] if given == "source" else target)

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings. The small network has few features and needs no wide bottleneck. It trains from random
        weights, so that the steps of a run are too few for two rounds."""
        config = cls()
        return replace(config, recipe=Recipe(), rounds=1) if small else config


class TCM(Method, config=TCMConfig):
    """Classification of source views, class confusion, and pseudo-labels for target views, in one or more rounds."""

    training_only = ("former",)
    round: Tensor  # [], the number of the round that training is in, from 0
    former: Tensor | None  # [target images, classes], the predictions at the end of the former round

    def __init__(self, problem: Problem, config: TCMConfig):
        super().__init__(problem, config)
        self.config, self.target_images = config, problem.target
        self.labeller = PseudoLabeller(problem.classes, config.threshold, config.momentum)
        self.centroids = CentroidClassifier(problem.classes, config.recipe.bottleneck)
        restarts = problem.target is not None and config.rounds > 1
        self.initial = {name: value.clone() for name, value in self.state_dict().items()} if restarts else {}
        self.register_buffer("round", torch.zeros((), dtype=torch.long))
        self.register_buffer("former", torch.zeros(problem.target.total, problem.classes) if problem.target else None)
        self.current: int | None = None  # `round`, known without asking the device

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms by name, all of them from one pass: batch normalisation sees all views together."""
        assert batch.strong is not None
        config, labels = self.config, batch.labels
        views = torch.cat([batch.source, batch.strong.source, batch.target, batch.strong.target])
        source, strong_source, target, strong_target = self.logits(self.features(views)).split(len(labels))
        found, weight = self.pseudo_labels(target, batch, progress)
        self.extra_metrics["labels/kept"] = found.kept.mean()
        return {
            "classification": config.weak * F.cross_entropy(source, labels)
            + config.strong * F.cross_entropy(strong_source, labels),
            "confusion": config.confusion * class_confusion(target, config.temperature),
            "pseudo_labels": config.pseudo_labels * weight * found.loss(strong_target),
        }

    def pseudo_labels(self, target: Tensor, batch: Batch, progress: float) -> tuple[PseudoLabels, float]:
        """Labels of the target images from their logits [batch, classes], and the weight of the labels.

        In the first round the weight grows with progress, because predictions are poor at the start. A later round
        begins with the labels of the former one, whose share falls to 0 in the first half of the round.
        """
        number, within = self.place(progress)
        predicted = target.detach().softmax(dim=1)
        if self.former is None or not self.has_labels(number):
            return self.labeller(predicted), ramp_up(within)
        assert batch.target_indices is not None
        found = self.labeller(predicted, self.former[batch.target_indices], max(0.0, 1 - 2 * within))
        return found, min(1.0, 20 * within)

    def has_labels(self, number: int) -> bool:
        """Whether there are labels of all target images when the round of this number begins."""
        return number > 0

    def features(self, images: Tensor) -> Tensor:
        """The input of the classifier: [batch, bottleneck], in single precision like all that follows the backbone."""
        pooled = self.backbone(images)
        with torch.autocast(pooled.device.type, enabled=False):
            return self.bottleneck(in_single(pooled))

    def logits(self, features: Tensor) -> Tensor:
        """The output of the classifier [batch, classes], in single precision."""
        with torch.autocast(features.device.type, enabled=False):
            return self.classifier(features)

    def answer(self, images: Tensor) -> Answer:
        """The prediction on the image alone: by the linear classifier while training, in the end by the centroids."""
        features = self.features(images)
        linear = self.logits(features)
        if not self.centroids.fitted:
            return Answer(linear, features)
        with torch.autocast(features.device.type, enabled=False):
            return Answer(self.centroids(features), features, {"linear classifier": linear})

    def conclude(self, target: Iterable[Tensor], source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Computes the centroids of the classes from all target images."""
        found = [self.features(images) for images in target]
        features = torch.cat(found)
        self.centroids.fit(features, self.logits(features).softmax(dim=1))

    def place(self, progress: float) -> tuple[int, float]:
        """The round at this progress, from 0, and the progress within it."""
        rounds = self.config.rounds if self.target_images else 1
        number = min(int(progress * rounds), rounds - 1)
        return number, progress * rounds - number

    def lr_factor(self, progress: float) -> float:
        """(1 + 10 p)^-0.75 at progress p of the round."""
        return inverse_decay(self.place(progress)[1])

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One gradient step; before it, a new round if it is time for one."""
        number, _ = self.place(progress)
        if self.current is None:
            self.current = int(self.round)
        if number > self.current:
            self.start_round(number, optimizers)
        return super().update(batch, progress, optimizers)

    def start_round(self, number: int, optimizers: dict[str, Optimizer]) -> None:
        """Predicts all target images, and then starts again from the initial weights."""
        assert self.target_images is not None
        assert self.former is not None
        self.eval()
        found = self.target_images.predict(self).to(self.former.device)
        self.load_state_dict(self.initial, strict=False)
        self.former.copy_(divided_by(found.mean(dim=0), found))
        self.round.fill_(number)
        self.current = number
        for optimizer in optimizers.values():
            optimizer.state.clear()
        self.train()
