"""Views of a few images as training sees them, to look at and to test."""

import torch
from torch import Tensor

from tcm.data.augment import as_input, crop_images, random_views
from tcm.data.stream import derived_generator
from tcm.data.strong_views import PHOTOGRAPHS, SMALL_IMAGES, Strength, random_strong_parameters, strong_views
from tcm.data.task import DataConfig

AT_ONCE = 64


def strength_of(config: DataConfig) -> Strength:
    """How far strong views may differ from the image: what the config says, or by the size of its crops."""
    gentle = config.is_small if config.gentle is None else config.gentle
    return SMALL_IMAGES if gentle else PHOTOGRAPHS


def weak_samples(images: Tensor, config: DataConfig, seed: int = 0) -> Tensor:
    """A training view of each of the uint8 images [n, size, size, 3]: [n, 3, crop, crop] in [0, 1]."""
    generator = derived_generator(seed, "weak sample")
    drawn = random_views(torch.arange(len(images))[None], images.shape[1], config.view, generator)
    return as_input(crop_images(images, type(drawn)(*(part[0] for part in drawn))))


def strong_samples(images: Tensor, config: DataConfig, side: int, seed: int = 0, flip: bool | None = None) -> Tensor:
    """A strong view of each of the uint8 images [n, size, size, 3]: [n, 3, side, side] in [0, 1].

    `flip` overrides what the config says about mirrored images.
    """
    view = config.view if flip is None else config.view._replace(flip=flip)
    generator = derived_generator(seed, "strong sample")
    parts = [
        strong_views(
            part, random_strong_parameters((len(part),), part.shape[1], view, strength_of(config), generator), side
        )
        for part in images.split(AT_ONCE)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, 3, side, side)
