"""The causal head: z of a VAE, the linear heads on it, and h_y solved from them (TCM Section 3.2, Algorithm 2)."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from tcm.methods.tcm.proxy import (
    ProxyFunction,
    ProxyHeads,
    ProxyWeights,
    Weighting,
    adjusted_logits,
    head_diagnostics,
    proxy_function,
    proxy_share,
)
from tcm.nn.losses import in_single, vae_loss
from tcm.nn.vae import VAEConfig, sampled

MEMORY = 10_000  # counterfactuals that P(x_hat | S) is estimated from in training, while the features still change


@dataclass(frozen=True)
class HeadConfig:
    """The proxy function h_y and what it is solved from; the defaults are the paper's."""

    vae: VAEConfig = field(default_factory=VAEConfig)
    vae_lr: float = 1e-5
    """Adam's learning rate of the VAE (the authors' code; the paper gives none)."""
    weighting: Weighting = "gaussian"
    """P(x_hat | S) in TCM Eq. (5). gaussian: the paper's isotropic density. uniform: all counterfactuals alike. mean:
    E[x_hat] for every image (the authors' code)."""
    ridge: float = 0.0
    """Added to W3^T W3 before it is inverted."""


class HeadLosses(NamedTuple):
    """The head's part of the objective on a batch."""

    terms: dict[str, Tensor]
    logits: Tensor  # [views of x, batch, classes], adjusted by TCM Eq. (5)
    h_y: ProxyFunction  # solved from the heads of this step
    share: Tensor  # of the logits' variance that comes from x_hat


class CausalHead(nn.Module):
    """f_y, f_xhat, the VAE, and P(x_hat | S) of both domains."""

    # h_y as evaluation mode found it: solving takes as long as a small batch's pass of the backbone. It follows from
    # the heads, so it is no part of the checkpoint.
    of_proxy: Tensor
    of_x: Tensor
    offset: Tensor

    def __init__(self, features: int, classes: int, config: HeadConfig):
        super().__init__()
        self.config = config
        self.vae = config.vae.build(features)
        self.heads = ProxyHeads(classes, features, config.vae.latent)
        self.source, self.target = ProxyWeights(features), ProxyWeights(features)
        for name, part in zip(ProxyFunction._fields, self.h_y(), strict=True):
            self.register_buffer(name, part, persistent=False)
        self.register_load_state_dict_post_hook(lambda head, _: head.solve())

    def train(self, mode: bool = True) -> "CausalHead":
        """Evaluation mode solves h_y, once for all predictions until the heads learn or are loaded again."""
        if not mode:
            self.solve()
        return super().train(mode)

    def solve(self) -> None:
        """Keeps the h_y of the heads as they are."""
        for buffer, part in zip((self.of_proxy, self.of_x, self.offset), self.h_y(), strict=True):
            buffer.copy_(part)

    def h_y(self) -> ProxyFunction:
        """TCM Eq. (7), solved from the heads as they are, which are constants to it."""
        return proxy_function(self.heads.constants(), self.config.ridge)

    def forward(self, x: Tensor, x_hat: Tensor, x_hat_of_target: Tensor, labels: Tensor) -> HeadLosses:
        """L_c and L_v of TCM Eq. (8) on source features x and x_hat, and the adjusted logits of x.

        All features are [views, batch, features]. The counterfactuals of both domains enter P(x_hat | S).
        """
        self.source.update(x_hat, MEMORY)
        self.target.update(x_hat_of_target, MEMORY)
        # Constants for the VAE and for f_xhat: features that shrink to nothing would be the easiest to predict.
        fixed = x.detach()
        mean, log_variance = self.vae.encode(fixed)
        z = sampled(mean, log_variance)
        restored, z = self.vae.decode(z), z.detach()
        h_y = self.h_y()
        proxy = self.source.average(x_hat, self.config.weighting)
        adjusted = adjusted_logits(h_y, x, proxy)
        known = labels.repeat(len(x))
        terms = {
            "label": F.cross_entropy(self.heads.f_y(z, x).flatten(0, 1), known),
            "adjusted": F.cross_entropy(adjusted.flatten(0, 1), known),
            "proxy": (self.heads.f_xhat(z, fixed) - x_hat.detach()).float().square().mean(),
            "vae": vae_loss(restored, fixed, mean, log_variance),
        }
        return HeadLosses(terms, adjusted, h_y, proxy_share(h_y, x.detach(), proxy.detach()))

    def solved(self) -> "SolvedHead":
        """The head with its h_y; while it learns, as it is now."""
        return SolvedHead(self, self.h_y() if self.training else ProxyFunction(self.of_proxy, self.of_x, self.offset))

    def predict_alone(self, x: Tensor) -> Tensor:
        """f_y at the mean of z: what the head says without h_y."""
        return self.heads.f_y(self.vae.encode(x)[0], x)

    def singular_values(self) -> list[float]:
        """All those of W3, one a dimension of z."""
        return list(head_diagnostics(self.heads.constants(), self.config.ridge).singular_values)

    def diagnostics(self) -> dict[str, float]:
        """Norms and the extreme singular values, for the metrics."""
        found = head_diagnostics(self.heads.constants(), self.config.ridge)
        values = found.singular_values
        return {
            "head/norm": found.norm,
            "head/direct_norm": found.direct_norm,
            "head/largest": values[0],
            "head/smallest": values[-1],
            "head/lost": found.lost,
        }


class SolvedHead(NamedTuple):
    """A causal head and its proxy function, TCM Eq. (7)."""

    head: CausalHead
    h_y: ProxyFunction

    def predict(self, x: Tensor, x_hat: Tensor, weighting: Weighting | None = None) -> Tensor:
        """P(Y | do(X)) of target images, TCM Eq. (5), as logits: x [batch, features], x_hat [k, batch, features]."""
        proxy = self.head.target.average(x_hat, weighting or self.head.config.weighting)
        return adjusted_logits(self.h_y, x, proxy)

    def predict_with_mean(self, x: Tensor) -> Tensor:
        """The same with E[x_hat] for every image, which needs no counterfactuals."""
        return adjusted_logits(self.h_y, x, self.head.target.mean.to(in_single(x).dtype))
