"""The variational autoencoder of features (Appendix A.3.2): where the latent z of the proxy function comes from."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from tcm.nn.heads import initialise_kaiming


@dataclass(frozen=True)
class VAEConfig:
    """The autoencoder of features; the defaults are the paper's."""

    latent: int = 100
    """Dimensions of z."""
    encoder: tuple[int, ...] = (1200, 600)
    """Widths between the features and z."""
    decoder: tuple[int, ...] = (600,)
    """Widths between z and the features."""
    dropout: float = 0.0
    """Dropout before the second layer of the encoder: 0.3 in the authors' code, none in the paper."""

    def build(self, features: int) -> "VAE":
        """The networks with fresh weights, for features that are not negative: the decoder ends in a ReLU."""
        return VAE(features, self)


class VAE(nn.Module):
    """Q(z | x), a Gaussian with a variance for each dimension, and the mean of P(x | z)."""

    def __init__(self, features: int, config: VAEConfig):
        super().__init__()
        self.encoder = _layers([features, *config.encoder, 2 * config.latent])[:-1]  # no ReLU: means have a sign
        self.decoder = _layers([config.latent, *config.decoder, features])
        if config.dropout and config.encoder:
            self.encoder.insert(2, nn.Dropout(config.dropout))
        self.apply(initialise_kaiming)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of Q(z | x), each [batch, latent].

        The appendix calls the second half of the output the variance. A linear layer has a sign and a variance has
        none, so it is the logarithm, as in the authors' code.
        """
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        return mean, log_variance

    def decode(self, z: Tensor) -> Tensor:
        """The features [batch, features] that z [batch, latent] stands for."""
        return self.decoder(z)


def sampled(mean: Tensor, log_variance: Tensor) -> Tensor:
    """One draw of z from a Gaussian, with the gradient of both arguments."""
    return mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)


def _layers(widths: list[int]) -> nn.Sequential:
    return nn.Sequential(*(layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())))
