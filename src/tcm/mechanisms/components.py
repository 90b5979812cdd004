"""What a change changes: its part in the level, the contrast, the detail and the colour of an image.

An image falls into these four parts: they add up to it and are orthogonal (where its side is no multiple of 8, the
cells of the grid overlap a little, and contrast and detail are so only nearly). Mechanisms that are to be
different must change different parts; which of them changes which is not given, it is competed for.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

COMPONENTS = ("level", "contrast", "detail", "colour")
GRID = 8  # contrast is what a grid of 8 x 8 cells can show, detail the rest
LEAST = 0.03  # of the range [-1, 1]: shares of a change smaller than this mean nothing


def components(change: Tensor) -> Tensor:
    """How strongly a change [n, 3, h, w] shows in each of COMPONENTS: root mean squares [n, 4]."""
    light = change.mean(dim=1, keepdim=True)
    level = light.mean(dim=(2, 3), keepdim=True)
    coarse = F.interpolate(F.adaptive_avg_pool2d(light, GRID), size=light.shape[-2:], mode="nearest")
    parts = (level, coarse - level, light - coarse, change - light)
    # The mean over three channels of what the light does alike to all of them is what it does to one.
    return torch.stack([(part.square().flatten(1).mean(dim=1) + 1e-8).sqrt() for part in parts], dim=1)


def allotted(moved: Tensor, sharpness: float = 4.0, rounds: int = 20) -> Tensor:
    """How much of each component belongs to each mechanism: [k, components], every column adds up to 1.

    A component belongs to those who change it most, [k, components] in `moved`, but every mechanism gets an equal share
    of all components: Sinkhorn's balancing of the shares, raised to a power so that it is close to a clear decision.
    """
    k, count = moved.shape
    share = ((moved + 1e-6) / (moved + 1e-6).sum(dim=0)) ** sharpness
    for _ in range(rounds):
        share = share / share.sum(dim=1, keepdim=True) * (count / k)
        share = share / share.sum(dim=0)
    return share


def prices(moved: Tensor, belongs: Tensor) -> Tensor:
    """What a change costs each mechanism in each band: [k, components].

    Nothing where the band is its own, and where it is another's the share of the whole change that it would be.
    """
    whole = moved.sum(dim=0).clamp(min=LEAST)
    return (1 - belongs) / whole / moved.shape[1]
