"""Networks on top of a backbone's features: bottleneck, classifier, domain discriminator, gradient reversal."""

from typing import Any

import torch
from torch import Tensor, nn


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return -ctx.factor * gradient, None


def reverse_gradient(x: Tensor, factor: float) -> Tensor:
    """x itself; its gradient is multiplied by -factor (the gradient reversal layer of Ganin and Lempitsky, 2015)."""
    result: Tensor = _Reverse.apply(x, factor)  # pyright: ignore[reportAssignmentType]
    return result


def multilinear_map(features: Tensor, predictions: Tensor) -> Tensor:
    """Every feature times every class probability: [batch, classes x features], the features of class 0 first.

    The outer product of f and g in Long et al. (2018), Section 3.2.
    """
    return (predictions[:, :, None] * features[:, None, :]).flatten(1)


def bottleneck(features: int, width: int) -> nn.Sequential:
    """Linear, BatchNorm, ReLU: features -> width."""
    linear = nn.Linear(features, width)
    nn.init.normal_(linear.weight, std=0.005)
    nn.init.constant_(linear.bias, 0.1)
    return nn.Sequential(linear, nn.BatchNorm1d(width), nn.ReLU())


def classifier(features: int, classes: int) -> nn.Linear:
    """A linear layer that starts close to zero: features -> logits."""
    linear = nn.Linear(features, classes)
    nn.init.normal_(linear.weight, std=0.01)
    nn.init.zeros_(linear.bias)
    return linear


def xavier_linear(features: int, outputs: int) -> nn.Linear:
    """A linear layer with Xavier weights and biases of 0, as ATDOC and SHOT have: features -> outputs."""
    linear = nn.Linear(features, outputs)
    nn.init.xavier_normal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def hidden_classifier(features: int, hidden: int, classes: int) -> nn.Sequential:
    """A classifier with one hidden layer and dropout, as MDD has two: features -> logits."""
    return nn.Sequential(classifier(features, hidden), nn.ReLU(), nn.Dropout(0.5), classifier(hidden, classes))


def deep_classifier(features: int, hidden: int, classes: int) -> nn.Sequential:
    """A classifier with two normalised hidden layers and dropout, as MCD has two: features -> logits."""
    layers: list[nn.Module] = []
    for width in (features, hidden):
        layers += [nn.Dropout(0.5), nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, classes))


def discriminator(features: int, hidden: int = 1024) -> nn.Sequential:
    """A domain discriminator of three linear layers: features -> one logit."""
    return nn.Sequential(
        nn.Linear(features, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Linear(hidden, 1),
    )


def plain_discriminator(features: int, hidden: int = 1024, dropout: float = 0.0, outputs: int = 1) -> nn.Sequential:
    """D_s or D_t of TCM Appendix A.3.2, three linear layers without normalisation: features -> one logit.

    `dropout` follows each hidden layer: 0.5 in the authors' code, none in the paper. GVB has two `outputs`.
    """
    layers: list[nn.Module] = []
    for width in (features, hidden):
        layers += [nn.Linear(width, hidden), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(hidden, outputs)).apply(initialise_kaiming)


class ClassDiscriminators(nn.Module):
    """One domain discriminator for each class, three linear layers with dropout, as MADA has them.

    The weights of all discriminators are one tensor per layer, [classes, inputs, outputs]: a batched product computes
    them together.
    """

    def __init__(self, classes: int, features: int, hidden: int = 1024):
        super().__init__()
        shapes = ((features, hidden), (hidden, hidden), (hidden, 1))
        self.weights = nn.ParameterList(torch.empty(classes, *shape) for shape in shapes)
        self.biases = nn.ParameterList(torch.zeros(classes, 1, outputs) for _, outputs in shapes)
        self.dropout = nn.Dropout(0.5)
        for weight, sd in zip(self.weights, (0.01, 0.01, 0.3), strict=True):  # as in the authors' code
            nn.init.normal_(weight, std=sd)

    def forward(self, x: Tensor) -> Tensor:
        """The logits [classes, batch, 1] of inputs [classes, batch, features]."""
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = self.dropout(torch.relu(torch.baddbmm(bias, x, weight)))
        return torch.baddbmm(last[1], x, last[0])


def initialise_kaiming(module: nn.Module) -> None:
    """Weights of a linear layer from N(0, 2 / inputs), biases 0 (TCM Appendix A.3.2).

    The appendix adds "with gain as 0.02". In the code that it uses, this option has no effect on Kaiming weights.
    """
    if isinstance(module, nn.Linear):
        nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(module.bias)
