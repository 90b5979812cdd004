"""The causal head: z of a VAE, the linear heads on it, and h_y solved from them (Section 3.2, Algorithm 2)."""

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
from tcm.methods.tcm.views import Views
from tcm.nn.losses import in_single, vae_loss
from tcm.nn.vae import VAEConfig, sampled

MEMORY = 10_000  # counterfactuals by which P(x_hat | S) is known in training, while the features still change


@dataclass(frozen=True)
class HeadConfig:
    """The proxy function h_y and what it is solved from; the defaults are the paper's, but for the weight."""

    weight: float = 0.0
    """Weight of the head's terms, L_c and L_v of Eq. (8). 0: no head."""
    vae: VAEConfig = field(default_factory=VAEConfig)
    vae_lr: float = 1e-5
    """Adam's learning rate of the VAE (the authors' code; the paper gives none)."""
    weighting: Weighting = "gaussian"
    """P(x_hat | S) in Eq. (5). gaussian: the paper's isotropic density. uniform: all counterfactuals alike. mean:
    E[x_hat] for every image (the authors' code)."""
    swapped: bool = False
    """Whether x is the source image's counterfactual and x_hat the image itself (the authors' code)."""
    ridge: float = 0.0
    """Added to W3^T W3 before it is inverted."""


class Solved(NamedTuple):
    """What the head says of a batch."""

    terms: dict[str, Tensor]
    logits: Views  # adjusted, of all source views and of target images
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
        """Eq. (7), solved from the heads as they are, which are constants to it."""
        return proxy_function(self.heads.constants(), self.config.ridge)

    def forward(self, features: Views, labels: Tensor) -> Solved:
        """L_c and L_v of Eq. (8), and the adjusted logits of Eq. (5)."""
        own, made, made_of_target = features.source[:1], features.source[1:], features.target[1:]
        x, x_hat = (made, own) if self.config.swapped else (own, made)
        self.source.update(x_hat, MEMORY)
        self.target.update(made_of_target, MEMORY)
        # Constant for the VAE and for f_xhat: features that shrink to nothing would be restored and foretold best.
        fixed = x.detach()
        mean, log_variance = self.vae.encode(fixed)
        z = sampled(mean, log_variance)
        restored, z = self.vae.decode(z), z.detach()
        h_y = self.h_y()
        proxy = self.source.average(x_hat, self.config.weighting)
        adjusted = adjusted_logits(h_y, features.source, proxy)
        on_target = adjusted_logits(h_y, features.target[0], self.target.average(made_of_target, self.config.weighting))
        known = labels.repeat(len(x))
        terms = {
            "label": F.cross_entropy(self.heads.f_y(z, x).flatten(0, 1), known),
            "adjusted": F.cross_entropy((adjusted[1:] if self.config.swapped else adjusted[:1]).flatten(0, 1), known),
            "proxy": (self.heads.f_xhat(z, fixed) - x_hat.detach()).float().square().mean(),
            "vae": vae_loss(restored, fixed, mean, log_variance),
        }
        return Solved(terms, Views(adjusted, on_target[None]), proxy_share(h_y, x.detach(), proxy.detach()))

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
    """A causal head and its proxy function, Eq. (7)."""

    head: CausalHead
    h_y: ProxyFunction

    def predict(self, x: Tensor, x_hat: Tensor, weighting: Weighting | None = None) -> Tensor:
        """P(Y | do(X)) of target images, Eq. (5), as logits: x [batch, features], x_hat [k, batch, features]."""
        proxy = self.head.target.average(x_hat, weighting or self.head.config.weighting)
        return adjusted_logits(self.h_y, x, proxy)

    def predict_with_mean(self, x: Tensor) -> Tensor:
        """The same with E[x_hat] for every image, which needs no counterfactuals."""
        return adjusted_logits(self.h_y, x, self.head.target.mean.to(in_single(x).dtype))
