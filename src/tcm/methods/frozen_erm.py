"""Source only without training a network: logistic regression on the features of the pretrained backbone."""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.data.batch import Batch
from tcm.methods.frozen import FrozenMethod
from tcm.methods.method import Answer, MethodConfig, Problem

STRENGTH = 10.0  # C of the logistic regression: the weight of the images against that of the regularisation
ITERATIONS, TOLERANCE = 1000, 1e-6


class FrozenERM(FrozenMethod):
    """A linear classifier of features of length 1, fitted to the source by multinomial logistic regression."""

    loss: Tensor  # [], the mean cross-entropy on the source after `fit`; 0 before

    def __init__(self, problem: Problem, config: MethodConfig):
        super().__init__(problem, config)
        self.task_features = problem.task_features
        self.linear = nn.Linear(problem.backbone.features, problem.classes).requires_grad_(False)
        self.register_buffer("loss", torch.zeros(()))

    @property
    def fitted(self) -> bool:
        """Whether there are weights."""
        return bool(self.loss > 0)

    def fit(self) -> None:
        """Fits the classifier to all source images that are not held out."""
        assert self.task_features is not None, "there are no images"
        features, labels, _ = self.task_features(self.backbone)
        self.fit_linear(self.normalised(features), labels)

    def fit_linear(self, features: Tensor, labels: Tensor) -> None:
        """Fits the classifier to normalised features [n, width] and their labels [n]."""
        weight, bias = logistic_regression(features.cpu(), labels.cpu(), self.linear.out_features)
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(bias)
        self.loss.copy_(F.cross_entropy(self.linear(features), labels).clamp_min(1e-12))

    def normalised(self, features: Tensor) -> Tensor:
        """The input of the linear classifier: features [batch, width], scaled to length 1."""
        return F.normalize(features, dim=1)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The cross-entropy on the source. Nothing minimises it further."""
        return {"classification": self.loss.clone()}

    def answer_of(self, features: Tensor) -> Answer:
        """The output of the linear classifier."""
        return Answer(self.linear(self.normalised(features)), features)


def logistic_regression(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Weights [classes, width] and biases [classes] that minimise sum_i H(y_i, softmax(W x_i + b)) + |W|^2 / (2 C)."""
    from sklearn.exceptions import ConvergenceWarning  # scikit-learn takes a second to import
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    model = LogisticRegression(C=STRENGTH, tol=TOLERANCE, max_iter=ITERATIONS)
    # One thread: one order of sums, so that the result is the same each time.
    with threadpool_limits(1, "blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so many iterations are enough
        found = model.fit(features.double().numpy(), labels.numpy())
    weight, bias = torch.from_numpy(found.coef_), torch.from_numpy(found.intercept_)
    if classes == 2:  # scikit-learn has one row for two classes: half of the difference for each
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    return weight.float(), bias.float()
