"""The variational autoencoder of features, which gives the latent z of the proxy functions (TCM Appendix A.3.2)."""

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
    """Widths of the hidden layers between the features and z."""
    decoder: tuple[int, ...] = (600,)
    """Widths of the hidden layers between z and the features."""
    dropout: float = 0.0
    """Dropout before the second layer of the encoder: 0.3 in the authors' code, none in the paper."""

    def build(self, features: int) -> "VAE":
        """The networks with new weights, for features that are not negative: the decoder ends in a ReLU."""
        return VAE(features, self)


class VAE(nn.Module):
    """The encoder Q(z | x), a Gaussian with one variance per dimension, and the decoder, the mean of P(x | z)."""

    def __init__(self, features: int, config: VAEConfig):
        super().__init__()
        self.encoder = _layers([features, *config.encoder, 2 * config.latent])[:-1]  # a mean may be negative: no ReLU
        self.decoder = _layers([config.latent, *config.decoder, features])
        if config.dropout and config.encoder:
            self.encoder.insert(2, nn.Dropout(config.dropout))
        self.apply(initialise_kaiming)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of Q(z | x), each [batch, latent].

        The appendix calls the second half of the output the variance. A linear layer may be negative and a variance may
        not, so it is the logarithm, as in the authors' code.
        """
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        return mean, log_variance

    def decode(self, z: Tensor) -> Tensor:
        """The features [batch, features] that the decoder gives for z [batch, latent]."""
        return self.decoder(z)


def sampled(mean: Tensor, log_variance: Tensor) -> Tensor:
    """One sample of z from a Gaussian, reparameterised: gradients flow to both arguments."""
    return mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)


def _layers(widths: list[int]) -> nn.Sequential:
    return nn.Sequential(*(layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())))
