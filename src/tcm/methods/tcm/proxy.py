"""The proxy function h_y (Section 3.2): what two linear heads say of a label once the latent z is solved for.

Everything here is computed in single precision or better, whatever the precision of the step around it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.nn.heads import initialise_kaiming
from tcm.nn.losses import in_single

Weighting = Literal["gaussian", "uniform", "mean"]

LOST = 1e-6  # a singular value this small beside the largest is rounding: above float32's, below any that was learned
NEGLIGIBLE = 0.01  # a share of the logits' variance that decides next to nothing
EXPLODES = 10.0  # x_hat and x are of one scale, so W1 W3^+ should not tower above W2


class LinearHeads(NamedTuple):
    """The matrices of Eq. (6): f_y = W1 z + W2 x + b1 and f_xhat = W3 z + W4 x + b2."""

    w1: Tensor  # [classes, latent]
    w2: Tensor  # [classes, features]
    b1: Tensor  # [classes]
    w3: Tensor  # [proxy features, latent]
    w4: Tensor  # [proxy features, features]
    b2: Tensor  # [proxy features]


class ProxyFunction(NamedTuple):
    """h_y as a linear function of x and x_hat, in float64."""

    of_proxy: Tensor  # [classes, proxy features], W1 W3^+
    of_x: Tensor  # [classes, features], W2 - W1 W3^+ W4
    offset: Tensor  # [classes], b1 - W1 W3^+ b2


class ProxyHeads(nn.Module):
    """f_y and f_xhat of Eq. (6), each one linear layer on (z, x)."""

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
        """The expected counterfactual features [batch, features]."""
        return self.to_proxy(torch.cat([z, x], dim=-1))

    def matrices(self) -> LinearHeads:
        """W and b as they are: gradients reach them."""
        w1, w2 = self.to_label.weight.tensor_split([self.latent], dim=1)
        w3, w4 = self.to_proxy.weight.tensor_split([self.latent], dim=1)
        return LinearHeads(w1, w2, self.to_label.bias, w3, w4, self.to_proxy.bias)

    def constants(self) -> LinearHeads:
        """W and b as constants: the loss on adjusted logits trains the backbone, f_y and f_xhat have their own."""
        return LinearHeads(*(matrix.detach() for matrix in self.matrices()))


def pseudo_inverse(w3: Tensor, ridge: float = 0.0) -> Tensor:
    """(W3^T W3 + ridge I)^-1 W3^T in float64: [latent, proxy features].

    Directions that W3 has lost (singular values below LOST times the largest) become 0, so it is finite for any W3.
    """
    w3 = w3.double()
    gram = w3.mT @ w3 + ridge * torch.eye(w3.shape[1], dtype=w3.dtype, device=w3.device)
    # A W3 that has diverged goes on to the loss, where training stops in plain words; `pinv` would not converge.
    gram = gram.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return torch.linalg.pinv(gram, rtol=LOST**2, hermitian=True) @ w3.mT


def proxy_function(heads: LinearHeads, ridge: float = 0.0) -> ProxyFunction:
    """h_y of Eq. (7), solved from the heads. It depends on no image: for many batches solve it once."""
    with torch.autocast(heads.w1.device.type, enabled=False):
        w1, w2, b1, w3, w4, b2 = (matrix.double() for matrix in heads)
        of_proxy = w1 @ pseudo_inverse(w3, ridge)
        return ProxyFunction(of_proxy, w2 - of_proxy @ w4, b1 - of_proxy @ b2)


def adjusted_logits(h_y: ProxyFunction, x: Tensor, x_hat: Tensor) -> Tensor:
    """h_y(x, x_hat) of Eq. (7): [batch, classes] from x [batch, features] and x_hat [batch, proxy features].

    x_hat [k, batch, proxy features] gives [k, batch, classes]; one x_hat [proxy features] stands for all images.
    """
    from_proxy, from_x = _parts(h_y, x, x_hat)
    return from_proxy + from_x


def _parts(h_y: ProxyFunction, x: Tensor, x_hat: Tensor) -> tuple[Tensor, Tensor]:
    kind = torch.promote_types(torch.promote_types(x.dtype, x_hat.dtype), torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        of_proxy, of_x, offset = (matrix.to(kind) for matrix in h_y)
        return x_hat.to(kind) @ of_proxy.mT, x.to(kind) @ of_x.mT + offset


class ProxyWeights(nn.Module):
    """P(x_hat | S) of one domain: an isotropic Gaussian with the moments of all counterfactuals it was shown."""

    # Predictions need them, so they belong to the checkpoint. In float64 a sum over many steps stays exact.
    count: Tensor  # [], counterfactuals so far
    mean: Tensor  # [features], E[x_hat]
    variance: Tensor  # [], of one feature around its mean, averaged over the features

    def __init__(self, features: int):
        super().__init__()
        for name, shape in (("count", ()), ("mean", (features,)), ("variance", ())):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def reset(self) -> None:
        """Forgets what it was shown: after the last step, one pass over a domain makes the moments exact."""
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def update(self, x_hat: Tensor, memory: int | None = None) -> None:
        """Takes in counterfactuals [..., features]; the moments are those of all so far, in whatever batches.

        With a `memory`, what was there before counts as that many counterfactuals at most.
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

        The softmax of the log density, which in 2,048 dimensions is far outside what a density could be written as.
        Uniform until the first update. Constant: the backbone is not to learn to be weighted.
        """
        squares = (x_hat.double() - self.mean).square().sum(dim=-1)
        precision = torch.where(self.variance > 0, 1 / self.variance, 0)
        return torch.softmax(-0.5 * precision * squares, dim=0)

    def average(self, x_hat: Tensor, weighting: Weighting) -> Tensor:
        """The proxy [batch, features] at which h_y is Eq. (5)'s sum over counterfactuals [k, batch, features].

        h_y is linear in x_hat, so the weighted sum of logits is h_y at the weighted mean. "mean" is E[x_hat], the same
        for all images and without a gradient: what the authors' code does. In single precision at least.
        """
        x_hat = in_single(x_hat)
        if weighting == "mean":
            return self.mean.to(x_hat.dtype).expand(x_hat.shape[1:])
        if weighting == "uniform":
            return x_hat.mean(dim=0)
        return (self(x_hat).to(x_hat.dtype).unsqueeze(-1) * x_hat).sum(dim=0)


@dataclass(frozen=True)
class HeadDiagnostics:
    """Whether the heads can do what the theory asks of them."""

    norm: float  # of W1 W3^+ (Frobenius): how strongly x_hat moves the logits
    direct_norm: float  # of W2: how strongly x does by itself
    singular_values: tuple[float, ...]  # of W3, one a dimension of z, the largest first

    @property
    def lost(self) -> int:
        """How many directions of z leave no trace in x_hat."""
        return sum(value <= LOST * self.singular_values[0] for value in self.singular_values)


@torch.no_grad()
def head_diagnostics(heads: LinearHeads, ridge: float = 0.0) -> HeadDiagnostics:
    """Norms and singular values of the heads, as plain numbers."""
    values = torch.linalg.svdvals(heads.w3.double())
    # A z of more dimensions than x_hat cannot be recovered: what is left over leaves no trace.
    values = F.pad(values, (0, heads.w3.shape[1] - len(values)))
    norm = proxy_function(heads, ridge).of_proxy.norm()
    return HeadDiagnostics(norm.item(), heads.w2.double().norm().item(), tuple(values.tolist()))


@torch.no_grad()
def proxy_share(h_y: ProxyFunction, x: Tensor, x_hat: Tensor) -> Tensor:
    """The variance of the logits' part W1 W3^+ x_hat over that of the logits, both over the batch: a scalar.

    Above 1 where the part of x cancels a larger part of x_hat; 0 where x_hat is the same for all images.
    """
    from_proxy, from_x = _parts(h_y, x, x_hat)
    logits = from_proxy + from_x
    of_proxy, of_all = (part.expand_as(logits).flatten(0, -2).var(dim=0).sum() for part in (from_proxy, logits))
    return of_proxy / of_all.clamp_min(torch.finfo(of_all.dtype).tiny)


class HeadMetrics(NamedTuple):
    """What the rows of metrics.jsonl tell of the heads: a key is `head/` and the field's name."""

    norm: float
    direct_norm: float
    largest: float  # singular value of W3
    smallest: float
    lost: float
    share: float  # of the logits' variance that comes from x_hat


def head_metrics(rows: Iterable[Mapping[str, Any]]) -> HeadMetrics | None:
    """The newest of each; None where the rows are not of a run with a causal head, or no evaluation is among them."""
    newest = {key: value for row in rows for key, value in row.items() if key.startswith("head/")}
    keys = [f"head/{name}" for name in HeadMetrics._fields]
    return HeadMetrics(*(newest[key] for key in keys)) if newest.keys() >= set(keys) else None


def head_remarks(found: HeadMetrics) -> list[str]:
    """What is wrong with the heads, in plain words; nothing where all is well."""
    remarks = []
    if found.lost:
        count = "1 direction of z leaves" if found.lost == 1 else f"{found.lost:.0f} directions of z leave"
        remarks.append(f"W3 is singular: {count} no trace in x_hat, where the proxies can tell nothing")
    if found.norm > EXPLODES * found.direct_norm:
        remarks.append(
            f"W1 W3^+ explodes: its norm is {found.norm:.3g} where that of W2 is {found.direct_norm:.3g}; "
            "small errors of x_hat decide the prediction, and a larger head.ridge would damp them"
        )
    if found.share < NEGLIGIBLE:
        remarks.append(f"The proxies do nothing: {found.share:.2%} of the variance of the logits comes from x_hat")
    return remarks
