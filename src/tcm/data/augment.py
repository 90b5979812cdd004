"""Random crops and flips as batched tensor operations on the device that holds the images."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

RATIOS = (3 / 4, 4 / 3)  # of width to height, where parts of random size are cut out
TRIES = 10  # draws of such a part before the whole image is taken


class View(NamedTuple):
    """How training images are cut out of stored ones."""

    crop: int  # side of the square that is cut out
    flip: bool  # mirror half of the images
    shift: int  # how far the square may reach over the edge, where the border pixels repeat
    area: float | None = None  # cut out random parts of at least this share of the image and resize them to the crop


def random_squares(indices: Tensor, size: int, view: View, generator: Generator) -> "Squares":
    """A random view of each of the size x size images that indices [steps, batch] name, on the indices' device."""
    draw, place = (random_cuts, squares) if view.area is None else (random_boxes, resized_squares)
    cuts = draw(indices.numel(), size, view, generator)
    by_step = cuts.reshape(len(cuts), *indices.shape).transpose(0, 1).to(indices.device)
    return place(indices, by_step, size, view.crop)


def random_cuts(count: int, size: int, view: View, generator: Generator) -> Tensor:
    """Top, left and mirror of `count` random views of size x size images: int64 [3, count] on the CPU."""
    low, high = -view.shift, size - view.crop + view.shift
    corners = torch.randint(low, high + 1, (2, count), generator=generator)
    mirrored = torch.randint(0, 2, (1, count), generator=generator) * int(view.flip)
    return torch.cat([corners, mirrored])


def random_boxes(count: int, size: int, view: View, generator: Generator) -> Tensor:
    """Top, left, mirror, height and width of `count` random parts of size x size images: int64 [5, count] on the CPU.

    As RandomResizedCrop of torchvision draws them: `view.area` to 1 of the image's area at an aspect ratio of 3/4 to
    4/3, the first of ten draws that fits into the image, else all of it.
    """
    assert view.area is not None
    shares, ratios = torch.rand((2, TRIES, count), generator=generator)
    area = size**2 * (view.area + (1 - view.area) * shares)
    ratio = RATIOS[0] * (RATIOS[1] / RATIOS[0]) ** ratios
    sides = torch.stack([(area / ratio).sqrt(), (area * ratio).sqrt()]).round()  # [height or width, try, image]
    fits = (sides <= size).all(dim=0)
    first = fits.int().argmax(dim=0).expand(2, 1, count)
    sides = torch.where(fits.any(dim=0), sides.gather(1, first).squeeze(1), size)
    corners = (torch.rand((2, count), generator=generator) * (size - sides + 1)).floor()
    mirrored = torch.randint(0, 2, (1, count), generator=generator) * int(view.flip)
    return torch.cat([corners.long(), mirrored, sides.long()])


def centre_cuts(count: int, size: int, crop: int) -> Tensor:
    """Top, left and mirror of the centre views: int64 [3, count]."""
    corner = (size - crop) // 2
    return torch.tensor([corner, corner, 0]).repeat(count, 1).T


class Squares(NamedTuple):
    """Which pixels of which images: one gather away from a batch. Any number of leading axes before `batch`.

    Rows and columns are whole numbers, or floating: then they lie between pixels, and a square is interpolated.
    """

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


def resized_squares(indices: Tensor, boxes: Tensor, size: int, crop: int) -> Squares:
    """Where crop x crop pixels lie in the parts that boxes [..., 5, batch] choose in size x size images."""
    top, left, mirrored, height, width = boxes.unsqueeze(-1).unbind(dim=-3)
    pixels = torch.arange(crop, device=boxes.device)
    across = torch.where(mirrored.bool(), crop - 1 - pixels, pixels)

    def places(start: Tensor, side: Tensor, pixels: Tensor) -> Tensor:
        within = (pixels + 0.5) * side / crop - 0.5
        return (start + within.clamp(min=0).minimum(side - 1)).clamp(0, size - 1)

    return Squares(indices, places(top, height, pixels), places(left, width, across))


def cut(images: Tensor, chosen: Squares) -> Tensor:
    """The chosen squares of uint8 images [n, size, size, 3] on the same device: uint8 [batch, crop, crop, 3]."""
    which = chosen.indices[:, None, None]
    return _sampled(chosen, lambda rows, columns: images[which, rows[:, :, None], columns[:, None, :]])


def cut_all(images: Tensor, chosen: Squares) -> Tensor:
    """The chosen squares of all k counterfactuals uint8 [n, k, size, size, 3]: uint8 [k, batch, crop, crop, 3]."""
    each = torch.arange(images.shape[1], device=images.device)[:, None, None, None]
    which = chosen.indices[:, None, None]
    return _sampled(chosen, lambda rows, columns: images[which, each, rows[:, :, None], columns[:, None, :]])


def _sampled(chosen: Squares, pixels: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """`pixels` at the chosen rows and columns; between pixels the bilinear mean of the four around."""
    rows, columns = chosen.rows, chosen.columns
    if not rows.is_floating_point():
        return pixels(rows, columns)
    across = columns.frac()[:, None, :, None]
    left, right = columns.floor().long(), columns.ceil().long()
    upper, lower = (
        torch.lerp(pixels(row.long(), left).float(), pixels(row.long(), right).float(), across)
        for row in (rows.floor(), rows.ceil())
    )
    return torch.lerp(upper, lower, rows.frac()[:, :, None, None]).round().byte()


def as_input(pixels: Tensor) -> Tensor:
    """Float images [..., 3, height, width] in [0, 1] of uint8 [..., height, width, 3], in channels-last memory."""
    return pixels.movedim(-1, -3).float().div_(255)


def as_stored(images: Tensor) -> Tensor:
    """The inverse of `as_input`: uint8 [..., height, width, 3] of images [..., 3, height, width] in [0, 1]."""
    return (images * 255).round().clamp(0, 255).byte().movedim(-3, -1)
