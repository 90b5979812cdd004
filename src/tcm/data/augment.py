"""Random crops and flips as batched tensor operations on the device that holds the images."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor


class View(NamedTuple):
    """How training images are cut out of stored ones."""

    crop: int  # side of the square that is cut out
    flip: bool  # mirror half of the images
    shift: int  # how far the square may reach over the edge, where the border pixels repeat


def random_cuts(count: int, size: int, view: View, generator: Generator) -> Tensor:
    """Top, left and mirror of `count` random views of size x size images: int64 [3, count] on the CPU."""
    low, high = -view.shift, size - view.crop + view.shift
    corners = torch.randint(low, high + 1, (2, count), generator=generator)
    mirrored = torch.randint(0, 2, (1, count), generator=generator) * int(view.flip)
    return torch.cat([corners, mirrored])


def centre_cuts(count: int, size: int, crop: int) -> Tensor:
    """Top, left and mirror of the centre views: int64 [3, count]."""
    corner = (size - crop) // 2
    return torch.tensor([corner, corner, 0]).repeat(count, 1).T


class Squares(NamedTuple):
    """Which pixels of which images: one gather away from a batch. Any number of leading axes before `batch`."""

    indices: Tensor  # [..., batch]
    rows: Tensor  # [..., batch, crop]
    columns: Tensor  # [..., batch, crop]


def squares(indices: Tensor, cuts: Tensor, size: int, crop: int) -> Squares:
    """The pixels that cuts [..., 3, batch] choose in size x size images; over the edge the border repeats."""
    top, left, mirrored = cuts.unsqueeze(-1).unbind(dim=-3)
    pixels = torch.arange(crop, device=cuts.device)
    rows = (top + pixels).clamp(0, size - 1)
    columns = (left + torch.where(mirrored.bool(), crop - 1 - pixels, pixels)).clamp(0, size - 1)
    return Squares(indices, rows, columns)


def cut(images: Tensor, chosen: Squares) -> Tensor:
    """The chosen squares of uint8 images [n, size, size, 3] on the same device: uint8 [batch, crop, crop, 3]."""
    return images[chosen.indices[:, None, None], chosen.rows[:, :, None], chosen.columns[:, None, :]]


def cut_all(images: Tensor, chosen: Squares) -> Tensor:
    """The chosen squares of all k counterfactuals uint8 [n, k, size, size, 3]: uint8 [k, batch, crop, crop, 3]."""
    each = torch.arange(images.shape[1], device=images.device)[:, None, None, None]
    return images[chosen.indices[:, None, None], each, chosen.rows[:, :, None], chosen.columns[:, None, :]]


def as_input(pixels: Tensor) -> Tensor:
    """Float images [..., 3, height, width] in [0, 1] of uint8 [..., height, width, 3], in channels-last memory."""
    return pixels.movedim(-1, -3).float().div_(255)


def as_stored(images: Tensor) -> Tensor:
    """The inverse of `as_input`: uint8 [..., height, width, 3] of images [..., 3, height, width] in [0, 1]."""
    return (images * 255).round().clamp(0, 255).byte().movedim(-3, -1)
