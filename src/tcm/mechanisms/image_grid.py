"""Source images beside their counterfactuals, as one small image for the log of a run of stage 1."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tcm.data.augment import as_input, as_stored
from tcm.data.store import ImageStore
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.distance import single_and_combined
from tcm.training.device import Compute, uncompiled

IMAGES = 4  # rows of the grid
SIDE = 128  # pixels of an image in the grid, at most
GAP = 2  # pixels between two images


@torch.inference_mode()
def image_grid(fabric: Compute, bank: MechanismBank, source: ImageStore) -> NDArray[np.uint8]:
    """One row per image: the image, then its counterfactuals by all mechanisms. [height, width, 3].

    If the critics see all changes combined, the combined image is the last column. The images are the same each time.
    """
    chosen = source.images[spread_over_classes(source.labels, IMAGES)]
    images = as_input(chosen.to(fabric.device))
    with fabric.autocast(), uncompiled():
        made = single_and_combined(bank)(images, "target")
    return tiled(torch.cat([images[None], made.float()]))


def tiled(images: Tensor) -> NDArray[np.uint8]:
    """Images [columns, rows, 3, side, side] in [0, 1] as one image with white gaps."""
    columns, rows, _, side, _ = images.shape
    small = images.flatten(0, 1)
    if side > SIDE:
        small = F.interpolate(small, size=(SIDE, SIDE), mode="area")
    stored = as_stored(F.pad(small, (0, GAP, 0, GAP), value=1.0)).unflatten(0, (columns, rows))
    across = stored.permute(1, 2, 0, 3, 4).flatten(2, 3).flatten(0, 1)  # [rows x height, columns x width, 3]
    return across[:-GAP, :-GAP].cpu().numpy()


def spread_over_classes(labels: Tensor, count: int) -> Tensor:
    """Indices of at most `count` images: one of each class in turn, at even distances within each class."""
    groups = [(labels == label).nonzero().flatten() for label in labels.unique()]
    turns = -(-count // len(groups))
    evenly = [group[torch.linspace(0, len(group) - 1, min(turns, len(group))).long()].tolist() for group in groups]
    in_turn = [group[turn] for turn in range(turns) for group in evenly if turn < len(group)]
    return torch.tensor(in_turn[:count])
