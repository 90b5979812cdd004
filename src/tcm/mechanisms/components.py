"""The components of a change of an image: level, contrast, detail and colour.

The four components add up to the change and are orthogonal. (If the side of the image is not a multiple of 8, the cells
of the grid overlap a little, and contrast and detail are only nearly orthogonal.) Mechanisms that are to differ must
change different components; they compete for them.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

COMPONENTS = ("level", "contrast", "detail", "colour")
GRID = 8  # contrast is the part that a grid of 8 x 8 cells can show, detail is the rest
MIN_CHANGE = 0.03  # on the scale [-1, 1]: smaller changes count as this large, because their shares mean nothing


def components(change: Tensor) -> Tensor:
    """The size of each of COMPONENTS of a change [n, 3, h, w]: root mean squares [n, 4]."""
    light = change.mean(dim=1, keepdim=True)
    level = light.mean(dim=(2, 3), keepdim=True)
    coarse = F.interpolate(F.adaptive_avg_pool2d(light, GRID), size=light.shape[-2:], mode="nearest")
    parts = (level, coarse - level, light - coarse, change - light)
    # Level, contrast and detail are the same in all three channels, so one channel gives their mean square.
    return torch.stack([(part.square().flatten(1).mean(dim=1) + 1e-8).sqrt() for part in parts], dim=1)


def component_shares(change: Tensor, sharpness: float = 4.0, rounds: int = 20) -> Tensor:
    """The share of each component that belongs to each mechanism: [k, components], every column sums to 1.

    A component belongs to the mechanisms that change it most, by `change` [k, components], and every mechanism gets the
    same total share: Sinkhorn balancing of the shares, after a power that makes them nearly 0 or 1.
    """
    k, count = change.shape
    share = ((change + 1e-6) / (change + 1e-6).sum(dim=0)) ** sharpness
    for _ in range(rounds):
        share = share / share.sum(dim=1, keepdim=True) * (count / k)
        share = share / share.sum(dim=0)
    return share


def overlap_weights(change: Tensor, belongs: Tensor) -> Tensor:
    """The weight of a change in the overlap loss for each mechanism and component: [k, components].

    0 for its own components; for those of others, the share that the change has in the change by all mechanisms.
    """
    whole = change.sum(dim=0).clamp(min=MIN_CHANGE)
    return (1 - belongs) / whole / change.shape[1]
