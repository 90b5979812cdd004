"""Diagnostics of the causal head: whether h_y can be solved from the linear heads, and whether the proxies matter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.methods.tcm.proxy import SINGULAR, LinearHeads, ProxyFunction, logit_parts, proxy_function

NEGLIGIBLE = 0.01  # a smaller share of the logits' variance hardly changes a prediction
EXPLODES = 10.0  # x_hat and x have the same scale, so W1 W3^+ should not be this many times as large as W2


@dataclass(frozen=True)
class HeadDiagnostics:
    """Norms and singular values of the linear heads."""

    norm: float  # Frobenius norm of W1 W3^+, by which x_hat changes the logits
    direct_norm: float  # Frobenius norm of W2, by which x changes them directly
    singular_values: tuple[float, ...]  # of W3, one per dimension of z, in descending order

    @property
    def lost(self) -> int:
        """The number of directions of z that have no effect on x_hat."""
        return sum(value <= SINGULAR * self.singular_values[0] for value in self.singular_values)


@torch.no_grad()
def head_diagnostics(heads: LinearHeads, ridge: float = 0.0) -> HeadDiagnostics:
    """Norms and singular values of these heads."""
    values = torch.linalg.svdvals(heads.w3.double())
    # If z has more dimensions than x_hat, the others have no effect on x_hat: singular value 0.
    values = F.pad(values, (0, heads.w3.shape[1] - len(values)))
    norm = proxy_function(heads, ridge).of_proxy.norm()
    return HeadDiagnostics(norm.item(), heads.w2.double().norm().item(), tuple(values.tolist()))


@torch.no_grad()
def proxy_share(h_y: ProxyFunction, x: Tensor, x_hat: Tensor) -> Tensor:
    """The variance over the batch of W1 W3^+ x_hat, divided by the variance of the logits: a scalar.

    It is more than 1 if the part of x cancels a part of x_hat, and 0 if x_hat is the same for all images.
    """
    from_proxy, from_x = logit_parts(h_y, x, x_hat)
    logits = from_proxy + from_x
    of_proxy, of_all = (part.expand_as(logits).flatten(0, -2).var(dim=0).sum() for part in (from_proxy, logits))
    return of_proxy / of_all.clamp_min(torch.finfo(of_all.dtype).tiny)


class HeadMetrics(NamedTuple):
    """The diagnostics in metrics.jsonl, where each key is `head/` and the name of the field."""

    norm: float
    direct_norm: float
    largest: float  # singular value of W3
    smallest: float
    lost: float
    share: float  # of the logits' variance that comes from x_hat


def head_metrics(rows: Iterable[Mapping[str, Any]]) -> HeadMetrics | None:
    """The newest value of each; None for a run without a causal head, or before its first evaluation."""
    newest = {key: value for row in rows for key, value in row.items() if key.startswith("head/")}
    keys = [f"head/{name}" for name in HeadMetrics._fields]
    return HeadMetrics(*(newest[key] for key in keys)) if newest.keys() >= set(keys) else None


def head_remarks(found: HeadMetrics) -> list[str]:
    """Messages about problems of the causal head; empty if there are none."""
    remarks = []
    if found.lost:
        count = "1 direction of z has" if found.lost == 1 else f"{found.lost:.0f} directions of z have"
        remarks.append(f"W3 is singular: {count} no effect on x_hat, so the proxies carry no information about it")
    if found.norm > EXPLODES * found.direct_norm:
        remarks.append(
            f"W1 W3^+ explodes: its norm is {found.norm:.3g}, and that of W2 is {found.direct_norm:.3g}; "
            "small errors of x_hat decide the prediction; with tcm-paper, try a larger `method.head.ridge`"
        )
    if found.share < NEGLIGIBLE:
        remarks.append(f"The proxies have no effect: {found.share:.2%} of the variance of the logits comes from x_hat")
    return remarks
