"""Generator and discriminator of small images, as in GTA (Sankaranarayanan et al., 2018).

At 32 x 32 pixels they are the networks of the authors' code. At 64 x 64 the generator begins with 4 x 4 pixels in place
of 2 x 2, as in DCGAN, and the discriminator has one more layer. There is no bias before a batch normalisation, where it
would change nothing.
"""

from itertools import pairwise
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from tcm.nn.losses import in_single


class Judged(NamedTuple):
    """What the discriminator says about images."""

    real: Tensor  # [batch], logits: large for a real image
    classes: Tensor  # [batch, classes], logits


class ImageGenerator(nn.Sequential):
    """Vectors [batch, inputs] to images [batch, 3, side, side] in [-1, 1]; the side is a multiple of 16."""

    def __init__(self, inputs: int, side: int, width: int):
        first = nn.ConvTranspose2d(inputs, 8 * width, side // 16, bias=False)
        layers: list[nn.Module] = [nn.Unflatten(1, (inputs, 1, 1)), first, nn.BatchNorm2d(8 * width), nn.ReLU()]
        for wide, narrow in pairwise((8 * width, 4 * width, 2 * width, width)):
            up = nn.ConvTranspose2d(wide, narrow, 4, stride=2, padding=1, bias=False)
            layers += [up, nn.BatchNorm2d(narrow), nn.ReLU()]
        super().__init__(*layers, nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1, bias=False), nn.Tanh())
        self.apply(_initialise)


class ImageDiscriminator(nn.Module):
    """Images [batch, 3, side, side] in [-1, 1]: are they real, and of which class? The side is 16, 32, 64 or so."""

    def __init__(self, classes: int, side: int, width: int):
        super().__init__()
        halvings = (side // 4).bit_length() - 1  # to 4 x 4 pixels
        layers: list[nn.Module] = []
        for narrow, wide in pairwise([3, *(width * min(2**level, 4) for level in range(halvings)), 2 * width]):
            convolution = nn.Conv2d(narrow, wide, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(wide), nn.LeakyReLU(0.2), nn.MaxPool2d(2)]
        layers[-1] = nn.MaxPool2d(4)
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.real, self.classes = nn.Linear(2 * width, 1), nn.Linear(2 * width, classes)
        self.apply(_initialise)

    def forward(self, images: Tensor) -> Judged:
        """Both answers for images."""
        features = self.features(images)
        return Judged(self.real(features)[:, 0], self.classes(features))


def loss_if_real(logits: Tensor) -> Tensor:
    """The error of D for images that should be real: the mean of -log sigmoid of its logits [batch]."""
    return F.softplus(-in_single(logits)).mean()


def loss_if_made(logits: Tensor) -> Tensor:
    """The error of D for images that should not be real: the mean of -log(1 - sigmoid) of its logits [batch]."""
    return F.softplus(in_single(logits)).mean()


def _initialise(module: nn.Module) -> None:
    """The initial weights of the authors' code."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, std=0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.1)
        nn.init.zeros_(module.bias)
