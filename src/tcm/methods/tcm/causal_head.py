"""The causal head: a VAE, linear heads, and the proxy function h_y solved from them (TCM Section 3.2)."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from tcm.methods.tcm.head_diagnostics import head_diagnostics, proxy_share
from tcm.methods.tcm.proxy import ProxyFunction, ProxyHeads, ProxyWeights, Weighting, adjusted_logits, proxy_function
from tcm.nn.losses import in_single, vae_loss
from tcm.nn.vae import VAEConfig, sampled

MEMORY = 10_000  # counterfactuals for the estimate of P(x_hat | S) in training, while features still change


@dataclass(frozen=True)
class HeadConfig:
    """The proxy function h_y and the networks it is solved from; the defaults are the paper's."""

    vae: VAEConfig = field(default_factory=VAEConfig)
    vae_lr: float = 1e-5
    """Learning rate of the VAE, with Adam (from the authors' code; the paper gives none)."""
    weighting: Weighting = "gaussian"
    """P(x_hat | S) in TCM Eq. (5). gaussian: an isotropic Gaussian (the paper). uniform: equal weights. mean: E[x_hat]
    in place of each image's x_hat (the authors' code)."""
    ridge: float = 0.0
    """Added to the diagonal of W3^T W3 before it is inverted."""


class HeadLosses(NamedTuple):
    """The losses of the causal head on a batch, and the values they are computed from."""

    terms: dict[str, Tensor]  # the losses by name
    logits: Tensor  # [views of x, batch, classes], TCM Eq. (5)
    h_y: ProxyFunction  # solved from the heads of this step
    share: Tensor  # of the variance of the logits that comes from x_hat


class CausalHead(nn.Module):
    """The VAE, f_y and f_xhat, and P(x_hat | S) of both domains."""

    # h_y for evaluation mode: solving it takes as long as a small batch in the backbone. It follows from the heads, so
    # it is not part of the checkpoint.
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
        """Sets the mode. Evaluation mode solves h_y once, for all predictions."""
        if not mode:
            self.solve()
        return super().train(mode)

    def solve(self) -> None:
        """Stores h_y of the present heads in the buffers."""
        for buffer, part in zip((self.of_proxy, self.of_x, self.offset), self.h_y(), strict=True):
            buffer.copy_(part)

    def h_y(self) -> ProxyFunction:
        """TCM Eq. (7), solved from the present heads, without gradients to them."""
        return proxy_function(self.heads.constants(), self.config.ridge)

    def forward(self, x: Tensor, x_hat: Tensor, x_hat_of_target: Tensor, labels: Tensor) -> HeadLosses:
        """L_c and L_v of TCM Eq. (8) on source features x and x_hat, and the logits of TCM Eq. (5).

        L_c is the cross-entropy of f_y ("label"), that of TCM Eq. (5) ("adjusted"; TCM Algorithm 1, line 15) and the
        squared error of f_xhat ("proxy"); L_v is "vae". All features are [views, batch, features]. The counterfactuals
        of both domains update P(x_hat | S).
        """
        self.source.update(x_hat, MEMORY)
        self.target.update(x_hat_of_target, MEMORY)
        # The VAE and f_xhat do not train the backbone: features that shrink to 0 would be the easiest to predict.
        fixed = x.detach()
        mean, log_variance = self.vae.encode(fixed)
        z = sampled(mean, log_variance)
        restored, z = self.vae.decode(z), z.detach()
        h_y = self.h_y()
        proxy = self.source.average(x_hat, self.config.weighting)
        adjusted = adjusted_logits(h_y, x, proxy)
        repeated = labels.repeat(len(x))
        terms = {
            "label": F.cross_entropy(self.heads.f_y(z, x).flatten(0, 1), repeated),
            "adjusted": F.cross_entropy(adjusted.flatten(0, 1), repeated),
            "proxy": (self.heads.f_xhat(z, fixed) - x_hat.detach()).float().square().mean(),
            "vae": vae_loss(restored, fixed, mean, log_variance),
        }
        return HeadLosses(terms, adjusted, h_y, proxy_share(h_y, x.detach(), proxy.detach()))

    def solved(self) -> "SolvedHead":
        """The head and its h_y: solved now in training mode, stored in evaluation mode."""
        return SolvedHead(self, self.h_y() if self.training else ProxyFunction(self.of_proxy, self.of_x, self.offset))

    def predict_alone(self, x: Tensor) -> Tensor:
        """Logits of f_y at the mean of z, without h_y."""
        return self.heads.f_y(self.vae.encode(x)[0], x)

    def singular_values(self) -> list[float]:
        """The singular values of W3, one per dimension of z."""
        return list(head_diagnostics(self.heads.constants(), self.config.ridge).singular_values)

    def diagnostics(self) -> dict[str, float]:
        """Norms and the extreme singular values, for metrics.jsonl."""
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
        """The same with E[x_hat] in place of x_hat, which needs no counterfactuals."""
        return adjusted_logits(self.h_y, x, self.head.target.mean.to(in_single(x).dtype))
