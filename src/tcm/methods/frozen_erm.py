"""Source only without training a network: logistic regression on the features of the pretrained backbone."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import LBFGS

from tcm.data.batch import Batch
from tcm.methods.frozen import FrozenMethod
from tcm.methods.method import Answer, MethodConfig, Problem

STRENGTH = 10.0  # C of the logistic regression: the weight of the images against that of the regularisation
ITERATIONS, TOLERANCE = 1000, 1e-6


class FrozenERM(FrozenMethod):
    """A linear classifier of means of length 1, fitted to the source by multinomial logistic regression."""

    loss: Tensor  # [], the mean cross-entropy on the source after `fit`; 0 before

    def __init__(self, problem: Problem, config: MethodConfig):
        super().__init__(problem, config)
        self.task_features = problem.task_features
        self.linear = nn.Linear(self.used_width, problem.classes).requires_grad_(False)
        self.register_buffer("loss", torch.zeros(()))

    @property
    def used_width(self) -> int:
        """How many features the classifier sees."""
        return self.backbone.features

    @property
    def fitted(self) -> bool:
        """Whether there are weights."""
        return bool(self.loss > 0)

    def fit(self) -> None:
        """Fits the classifier to all source images that are not held out."""
        assert self.task_features is not None, "there are no images"
        features, labels, _ = self.task_features(self.backbone)
        self.set_linear(logistic_regression(self.normalised(features), labels, self.linear.out_features))

    def set_linear(self, found: "LinearClassifier") -> None:
        """Makes this the classifier."""
        self.linear.weight.copy_(found.weight)
        self.linear.bias.copy_(found.bias)
        self.loss.copy_(found.loss.clamp_min(1e-12))

    def normalised(self, features: Tensor) -> Tensor:
        """The input of the linear classifier for features of the backbone: the means, scaled to length 1."""
        return F.normalize(self.means(features), dim=1)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The cross-entropy on the source. Nothing minimises it further."""
        return {"classification": self.loss.clone()}

    def answer_of(self, features: Tensor) -> Answer:
        """The output of the linear classifier."""
        seen = self.normalised(features)
        return Answer(self.linear(seen), seen)


class LinearClassifier(NamedTuple):
    """A linear classifier, and how well it fits."""

    weight: Tensor  # [classes, width]
    bias: Tensor  # [classes]
    loss: Tensor  # [], the mean cross-entropy on what it was fitted to

    def probabilities(self, features: Tensor) -> Tensor:
        """Class probabilities [n, classes] of features [n, width]."""
        return F.linear(features, self.weight, self.bias).softmax(dim=1)


def logistic_regression(features: Tensor, labels: Tensor, classes: int) -> LinearClassifier:
    """The classifier that minimises sum_i H(y_i, softmax(W x_i + b)) + |W|^2 / (2 C) of features [n, width].

    By L-BFGS in single precision, on the device of the features.
    """
    weight, bias = (features.new_zeros(classes, *size).requires_grad_() for size in ((features.shape[1],), ()))
    optimizer = LBFGS([weight, bias], max_iter=ITERATIONS, tolerance_grad=TOLERANCE, line_search_fn="strong_wolfe")
    strength = STRENGTH * len(features)  # the loss is a mean over images

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = F.cross_entropy(F.linear(features, weight, bias), labels) + weight.square().sum() / (2 * strength)
        found.backward()
        return found

    with torch.enable_grad():
        optimizer.step(loss)  # pyright: ignore[reportArgumentType]
    weight, bias = weight.detach(), bias.detach()
    return LinearClassifier(weight, bias, F.cross_entropy(F.linear(features, weight, bias), labels))
