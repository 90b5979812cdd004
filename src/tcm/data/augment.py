"""Random crops and flips as batched tensor operations on the device that holds the images."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

RATIOS = (3 / 4, 4 / 3)  # width to height of boxes of random size
TRIES = 10  # boxes that are drawn before the whole image is taken


class View(NamedTuple):
    """How training images are cropped out of stored ones."""

    crop: int  # side of the crop
    flip: bool  # mirror half of the images
    shift: int  # how far a crop may reach over the edge, where the border pixels repeat
    area: float | None = None  # crop boxes of at least this share of the image's area and resize them to the crop


class CropPixels(NamedTuple):
    """Which pixels of which images make up the crops of a batch. There may be axes before `batch`.

    Rows and columns are integers, or floats between the pixels, where `crop_images` interpolates.
    """

    indices: Tensor  # [..., batch]
    rows: Tensor  # [..., batch, crop]
    columns: Tensor  # [..., batch, crop]


def random_views(indices: Tensor, size: int, view: View, generator: Generator) -> CropPixels:
    """A random view of each of the size x size images at indices [steps, batch], on the device of the indices."""
    draw, pixels_of = (random_crops, crop_pixels) if view.area is None else (random_boxes, box_pixels)
    crops = draw(indices.numel(), size, view, generator)
    by_step = crops.reshape(len(crops), *indices.shape).transpose(0, 1).to(indices.device)
    return pixels_of(indices, by_step, size, view.crop)


def random_crops(count: int, size: int, view: View, generator: Generator) -> Tensor:
    """Top, left and mirror of `count` random crops of size x size images: int64 [3, count] on the CPU."""
    low, high = -view.shift, size - view.crop + view.shift
    corners = torch.randint(low, high + 1, (2, count), generator=generator)
    mirrored = torch.randint(0, 2, (1, count), generator=generator) * int(view.flip)
    return torch.cat([corners, mirrored])


def random_boxes(count: int, size: int, view: View, generator: Generator) -> Tensor:
    """Top, left, mirror, height and width of `count` random boxes in size x size images: int64 [5, count] on the CPU.

    They are drawn as torchvision's RandomResizedCrop draws them: `view.area` to 1 of the image's area, an aspect ratio
    of 3/4 to 4/3, and the first of ten boxes that fits into the image, or the whole image if none fits.
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


def centre_crops(count: int, size: int, crop: int) -> Tensor:
    """Top, left and mirror of `count` centre crops: int64 [3, count]."""
    corner = (size - crop) // 2
    return torch.tensor([corner, corner, 0]).repeat(count, 1).T


def crop_pixels(indices: Tensor, crops: Tensor, size: int, crop: int) -> CropPixels:
    """The pixels of crops [..., 3, batch] of size x size images; over the edge the border pixels repeat."""
    top, left, mirrored = crops.unsqueeze(-1).unbind(dim=-3)
    pixels = torch.arange(crop, device=crops.device)
    rows = (top + pixels).clamp(0, size - 1)
    columns = (left + torch.where(mirrored.bool(), crop - 1 - pixels, pixels)).clamp(0, size - 1)
    return CropPixels(indices, rows, columns)


def box_pixels(indices: Tensor, boxes: Tensor, size: int, crop: int) -> CropPixels:
    """Where the pixels of boxes [..., 5, batch] lie in size x size images when each is resized to crop x crop."""
    top, left, mirrored, height, width = boxes.unsqueeze(-1).unbind(dim=-3)
    pixels = torch.arange(crop, device=boxes.device)
    across = torch.where(mirrored.bool(), crop - 1 - pixels, pixels)

    def places(start: Tensor, side: Tensor, pixels: Tensor) -> Tensor:
        within = (pixels + 0.5) * side / crop - 0.5
        return (start + within.clamp(min=0).minimum(side - 1)).clamp(0, size - 1)

    return CropPixels(indices, places(top, height, pixels), places(left, width, across))


def crop_images(images: Tensor, chosen: CropPixels) -> Tensor:
    """The crops of uint8 images [n, size, size, 3] on the same device: uint8 [batch, crop, crop, 3]."""
    which = chosen.indices[:, None, None]
    return _sampled(chosen, lambda rows, columns: images[which, rows[:, :, None], columns[:, None, :]])


def crop_counterfactuals(images: Tensor, chosen: CropPixels) -> Tensor:
    """The crops of all k counterfactuals uint8 [n, k, size, size, 3]: uint8 [k, batch, crop, crop, 3]."""
    each = torch.arange(images.shape[1], device=images.device)[:, None, None, None]
    which = chosen.indices[:, None, None]
    return _sampled(chosen, lambda rows, columns: images[which, each, rows[:, :, None], columns[:, None, :]])


def _sampled(chosen: CropPixels, pixels: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """`pixels` at the chosen rows and columns; between pixels, bilinear interpolation of the four neighbours."""
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
    """Float images [..., 3, height, width] in [0, 1] from uint8 [..., height, width, 3], in channels-last memory."""
    return pixels.movedim(-1, -3).float().div_(255)


def as_stored(images: Tensor) -> Tensor:
    """The inverse of `as_input`: uint8 [..., height, width, 3] from images [..., 3, height, width] in [0, 1]."""
    return (images * 255).round().clamp(0, 255).byte().movedim(-3, -1)
