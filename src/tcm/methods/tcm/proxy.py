"""The proxy function h_y and P(x_hat | S) (TCM Section 3.2, TCM Eq. (5) to (7)).

All of it is computed in float32 or float64, also in a training step in lower precision.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from tcm.nn.heads import initialise_kaiming
from tcm.nn.losses import in_single

Weighting = Literal["gaussian", "uniform", "mean"]

SINGULAR = 1e-6  # singular values below this share of the largest are rounding errors of float32


class LinearHeads(NamedTuple):
    """The matrices of TCM Eq. (6): f_y = W1 z + W2 x + b1 and f_xhat = W3 z + W4 x + b2."""

    w1: Tensor  # [classes, latent]
    w2: Tensor  # [classes, features]
    b1: Tensor  # [classes]
    w3: Tensor  # [proxy features, latent]
    w4: Tensor  # [proxy features, features]
    b2: Tensor  # [proxy features]


class ProxyFunction(NamedTuple):
    """h_y of TCM Eq. (7) as a linear function of x and x_hat, in float64."""

    of_proxy: Tensor  # [classes, proxy features], W1 W3^+
    of_x: Tensor  # [classes, features], W2 - W1 W3^+ W4
    offset: Tensor  # [classes], b1 - W1 W3^+ b2


class ProxyHeads(nn.Module):
    """f_y and f_xhat of TCM Eq. (6), each a linear layer on (z, x)."""

    def __init__(self, classes: int, features: int, latent: int):
        super().__init__()
        self.latent = latent
        self.to_label = nn.Linear(latent + features, classes)
        self.to_proxy = nn.Linear(latent + features, features)
        self.apply(initialise_kaiming)

    def f_y(self, z: Tensor, x: Tensor) -> Tensor:
        """Logits [batch, classes] from z [batch, latent] and x [batch, features]."""
        return self.to_label(torch.cat([z, x], dim=-1))

    def f_xhat(self, z: Tensor, x: Tensor) -> Tensor:
        """The predicted x_hat [batch, features]."""
        return self.to_proxy(torch.cat([z, x], dim=-1))

    def matrices(self) -> LinearHeads:
        """W and b, with gradients."""
        w1, w2 = self.to_label.weight.tensor_split([self.latent], dim=1)
        w3, w4 = self.to_proxy.weight.tensor_split([self.latent], dim=1)
        return LinearHeads(w1, w2, self.to_label.bias, w3, w4, self.to_proxy.bias)

    def constants(self) -> LinearHeads:
        """W and b without gradients: f_y and f_xhat have their own losses, and the loss on h_y trains the backbone."""
        return LinearHeads(*(matrix.detach() for matrix in self.matrices()))


def pseudo_inverse(w3: Tensor, ridge: float = 0.0) -> Tensor:
    """(W3^T W3 + ridge I)^-1 W3^T in float64: [latent, proxy features].

    Singular values below SINGULAR times the largest count as 0, so the result is finite for any W3.
    """
    w3 = w3.double()
    gram = w3.mT @ w3 + ridge * torch.eye(w3.shape[1], dtype=w3.dtype, device=w3.device)
    # If W3 has diverged, `pinv` would fail. The loss is then not finite, and training stops with a clear message.
    gram = gram.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return torch.linalg.pinv(gram, rtol=SINGULAR**2, hermitian=True) @ w3.mT


def proxy_function(heads: LinearHeads, ridge: float = 0.0) -> ProxyFunction:
    """h_y of TCM Eq. (7), solved from the heads. It does not depend on images: solve it once for many batches."""
    with torch.autocast(heads.w1.device.type, enabled=False):
        w1, w2, b1, w3, w4, b2 = (matrix.double() for matrix in heads)
        of_proxy = w1 @ pseudo_inverse(w3, ridge)
        return ProxyFunction(of_proxy, w2 - of_proxy @ w4, b1 - of_proxy @ b2)


def adjusted_logits(h_y: ProxyFunction, x: Tensor, x_hat: Tensor) -> Tensor:
    """h_y(x, x_hat) of TCM Eq. (7): [batch, classes] from x [batch, features] and x_hat [batch, proxy features].

    x_hat [k, batch, proxy features] gives [k, batch, classes]; one x_hat [proxy features] is used for all images.
    """
    from_proxy, from_x = logit_parts(h_y, x, x_hat)
    return from_proxy + from_x


def logit_parts(h_y: ProxyFunction, x: Tensor, x_hat: Tensor) -> tuple[Tensor, Tensor]:
    """The two parts of h_y(x, x_hat): W1 W3^+ x_hat, and the rest, which depends on x."""
    kind = torch.promote_types(torch.promote_types(x.dtype, x_hat.dtype), torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        of_proxy, of_x, offset = (matrix.to(kind) for matrix in h_y)
        return x_hat.to(kind) @ of_proxy.mT, x.to(kind) @ of_x.mT + offset


class ProxyWeights(nn.Module):
    """P(x_hat | S) of one domain: an isotropic Gaussian, fitted to the counterfactuals passed to `update`."""

    # Buffers, because predictions need them; float64, so that sums over many steps stay accurate.
    count: Tensor  # [], number of counterfactuals
    mean: Tensor  # [features], E[x_hat]
    variance: Tensor  # [], the mean over features of their variances

    def __init__(self, features: int):
        super().__init__()
        for name, shape in (("count", ()), ("mean", (features,)), ("variance", ())):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def reset(self) -> None:
        """Clears the moments, for an exact pass over a domain after the last step."""
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def update(self, x_hat: Tensor, memory: int | None = None) -> None:
        """Adds counterfactuals [..., features]. The moments do not depend on how they are split into batches.

        With `memory`, all earlier counterfactuals together count as at most that many.
        """
        x_hat = x_hat.detach().double().flatten(0, -2)
        variance, mean = torch.var_mean(x_hat, dim=0, correction=0)
        total = self.count.clamp(max=math.inf if memory is None else memory) + len(x_hat)
        share, step = len(x_hat) / total, mean - self.mean
        between = share * (1 - share) * step.square().mean()
        self.variance.copy_((1 - share) * self.variance + share * variance.mean() + between)
        self.mean.add_(share * step)
        self.count.copy_(total)

    @torch.no_grad()
    def forward(self, x_hat: Tensor) -> Tensor:
        """P(x_hat | S) normalised over the k counterfactuals of an image: [k, batch] from [k, batch, features].

        The softmax of the log density, because the density itself underflows in 2,048 dimensions. Uniform before the
        first update. Without gradient: the backbone should not learn to change the weights.
        """
        squares = (x_hat.double() - self.mean).square().sum(dim=-1)
        precision = torch.where(self.variance > 0, 1 / self.variance, 0)
        return torch.softmax(-0.5 * precision * squares, dim=0)

    def average(self, x_hat: Tensor, weighting: Weighting) -> Tensor:
        """The weighted mean of x_hat over counterfactuals: [k, batch, features] -> [batch, features].

        h_y is linear in x_hat, so h_y at this mean is the weighted sum of TCM Eq. (5). "mean" is E[x_hat], the same for
        all images and without gradient.
        """
        x_hat = in_single(x_hat)
        if weighting == "mean":
            return self.mean.to(x_hat.dtype).expand(x_hat.shape[1:])
        if weighting == "uniform":
            return x_hat.mean(dim=0)
        return (self(x_hat).to(x_hat.dtype).unsqueeze(-1) * x_hat).sum(dim=0)
