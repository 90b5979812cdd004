"""Strong views of training images: one affine sampling of the stored image, then colours, blur and a grey square.

Written by hand because kornia 0.9 draws from torch's global random state, so its views are not a function of the seed
and the step. It also takes 2.2 times as long (one CPU core) and samples an image twice to crop and turn it, which
leaves 51 % of fine detail where one sampling leaves 67 %: `benchmarks/augmentation.py`.
"""

from math import pi, prod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from tcm.data.augment import View, as_input, random_boxes

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # the grey of squares: 0 for networks that were pretrained on ImageNet

# Colours are the same for every kind of image: ranges of the factors, and the share of images that each changes.
BRIGHTNESS = CONTRAST = (0.5, 1.5)
SATURATION = (0.0, 1.8)
TINT = (0.75, 1.25)  # of each channel
SOLARISE = (0.3, 1.0)  # thresholds
POSTERISE = (2, 5)  # bits
SHARPEN = (-0.9, 1.5)  # negative: blur
JITTERED, TINTED, GREY, POSTERISED, SHARPENED = 0.8, 0.5, 0.15, 0.1, 0.4
TURNED, COVERED = 0.5, 0.5


class Strength(NamedTuple):
    """How far strong views may differ from the image, as far as this depends on the kind of image."""

    area: float  # boxes have at least this share of the image's area
    rotation: float  # degrees, to either side
    shear: float  # to either side
    square: tuple[float, float]  # side of the grey square as a share of the view's side
    solarised: float  # share of the images


PHOTOGRAPHS = Strength(area=0.35, rotation=26, shear=0.25, square=(0.15, 0.45), solarised=0.1)
# Digits: one that is turned far, cut off or has its background inverted in part can no longer be read.
SMALL_IMAGES = Strength(area=0.8, rotation=12, shear=0.1, square=(0.15, 0.3), solarised=0)


class StrongParameters(NamedTuple):
    """What makes the strong views of a batch out of its images. There may be axes before `batch`."""

    transform: Tensor  # [..., batch, 2, 3], from (x, y, 1) in the view to (x, y) in the image, both in [-1, 1]
    brightness: Tensor  # [..., batch], factor; 1 changes nothing
    contrast: Tensor  # [..., batch], factor
    saturation: Tensor  # [..., batch], factor; 0: grey
    tint: Tensor  # [..., batch, 3], factor per channel
    solarise: Tensor  # [..., batch], threshold above which channels are inverted; 1: none
    levels: Tensor  # [..., batch], levels per channel; 0: any
    sharpen: Tensor  # [..., batch], share of the local contrast that is added; negative: removed
    square: Tensor  # [..., batch, 3], row and column of the centre and side as shares of the view's side

    def to(self, device: torch.device) -> "StrongParameters":
        """The same on the device."""
        return StrongParameters(*(part.to(device) for part in self))

    def at(self, step: int) -> "StrongParameters":
        """Those of one step out of [steps, batch]."""
        return StrongParameters(*(part[step] for part in self))


def random_strong_parameters(
    shape: tuple[int, ...], size: int, view: View, strength: Strength, generator: Generator
) -> StrongParameters:
    """Parameters of strong views of size x size images, each view its own, on the CPU; `shape` is (..., batch).

    Images are mirrored where `view.flip` says so; the rest of the geometry is that of `strength`.
    """
    count = prod(shape)

    def between(limits: tuple[float, float], *axes: int) -> Tensor:
        return limits[0] + (limits[1] - limits[0]) * torch.rand((count, *axes), generator=generator)

    def some(share: float) -> Tensor:
        return torch.rand(count, generator=generator) < share

    boxes = random_boxes(count, size, view._replace(area=strength.area), generator)
    turned, grey, hidden = some(TURNED), some(GREY), some(COVERED)
    angles, shears = (between((-most, most)) * turned for most in (strength.rotation * pi / 180, strength.shear))
    bits = torch.randint(POSTERISE[0], POSTERISE[1] + 1, (count,), generator=generator)
    square = torch.cat([between((0, 1), 2), between(strength.square, 1) * hidden[:, None]], dim=1)
    parameters = StrongParameters(
        transform=box_transforms(boxes, size, angles, shears),
        brightness=between(BRIGHTNESS).where(some(JITTERED), 1),
        contrast=between(CONTRAST).where(some(JITTERED), 1),
        saturation=between(SATURATION).where(some(JITTERED), 1).where(~grey, 0),
        tint=between(TINT, 3).where((some(TINTED) & ~grey)[:, None], 1),
        solarise=between(SOLARISE).where(some(strength.solarised), 1),
        levels=(2.0**bits).where(some(POSTERISED), 0),
        sharpen=between(SHARPEN).where(some(SHARPENED), 0),
        square=square,
    )
    return StrongParameters(*(part.reshape(*shape, *part.shape[1:]) for part in parameters))


def box_transforms(boxes: Tensor, size: int, angles: Tensor, shears: Tensor) -> Tensor:
    """Transforms [count, 2, 3] that resize boxes [5, count] of size x size images to views, as `random_boxes` has them.

    What the view shows is sheared and turned, by radians, about the centre of the box.
    """
    top, left, mirrored, height, width = boxes.float()
    across, down = (1 - 2 * mirrored) * width / size, height / size
    sine, cosine = angles.sin(), angles.cos()
    x = torch.stack([across * cosine, -down * (sine + shears * cosine), (2 * left + width) / size - 1], dim=1)
    y = torch.stack([across * sine, down * (cosine - shears * sine), (2 * top + height) / size - 1], dim=1)
    return torch.stack([x, y], dim=1)


def strong_views(images: Tensor, parameters: StrongParameters, crop: int) -> Tensor:
    """The strong views of uint8 images [batch, size, size, 3]: [batch, 3, crop, crop] in [0, 1], channels-last memory.

    Nothing here depends on values on the host, so that the whole can be compiled.
    """
    x = recoloured(transformed(images, parameters.transform, crop), parameters)
    x = covered(sharpened(x, parameters.sharpen), parameters.square)
    return x.contiguous(memory_format=torch.channels_last)


def transformed(images: Tensor, transforms: Tensor, crop: int) -> Tensor:
    """Views [batch, 3, crop, crop] in [0, 1] of uint8 images, bilinear; over the edge the image is mirrored."""
    centres = (2 * torch.arange(crop, device=images.device) + 1) / crop - 1
    # Not `affine_grid`, which is a matrix product: TF32, where it is allowed, rounds the places to 11 bits.
    x, y, offset = transforms[:, :, :, None, None].unbind(dim=2)
    grid = x * centres + y * centres[:, None] + offset
    return F.grid_sample(as_input(images), grid.movedim(1, -1), padding_mode="reflection", align_corners=False)


def recoloured(x: Tensor, parameters: StrongParameters) -> Tensor:
    """Images [batch, 3, height, width] in [0, 1] with other colours, in the order of the parameters."""
    x = (x * _each(parameters.brightness)).clamp(0, 1)
    x = torch.lerp(_grey(x).mean(dim=(2, 3), keepdim=True), x, _each(parameters.contrast)).clamp(0, 1)
    x = torch.lerp(_grey(x), x, _each(parameters.saturation)).clamp(0, 1)
    x = (x * parameters.tint[:, :, None, None]).clamp(0, 1)
    x = torch.where(x > _each(parameters.solarise), 1 - x, x)
    levels = _each(parameters.levels)
    return torch.where(levels > 0, (x * levels).floor().minimum(levels - 1) / (levels - 1), x)


def _grey(x: Tensor) -> Tensor:
    red, green, blue = x.split(1, dim=1)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _each(values: Tensor) -> Tensor:
    """Values [batch] in the form that multiplies images."""
    return values[:, None, None, None]


def sharpened(x: Tensor, amounts: Tensor) -> Tensor:
    """Images with `amounts` [batch] times their difference from a blurred copy added."""
    kernel = max(3, x.shape[-1] // 112 * 2 + 1)  # 5 for crops of 224, 3 for small images
    blurred = F.avg_pool2d(x, kernel, stride=1, padding=kernel // 2, count_include_pad=False)
    return torch.lerp(blurred, x, 1 + _each(amounts)).clamp(0, 1)


def covered(x: Tensor, squares: Tensor) -> Tensor:
    """Images with a grey square each: rows and columns of the centre and sides are [batch, 3] shares of the side."""
    centres = (torch.arange(x.shape[-1], device=x.device) + 0.5) / x.shape[-1]
    row, column, side = squares[:, :, None].unbind(dim=1)
    rows, columns = ((centres - middle).abs() < side / 2 for middle in (row, column))
    grey = torch.stack([x.new_full((1, 1), level) for level in IMAGENET_MEAN])
    return torch.where((rows[:, :, None] & columns[:, None, :])[:, None], grey, x)
