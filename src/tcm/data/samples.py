"""Views of a few images as training sees them, to look at and to test."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tcm.data.augment import as_input, as_stored, centre_crops, crop_images, crop_pixels, random_views
from tcm.data.domains import Domain
from tcm.data.images import BadImage, decode, resized
from tcm.data.reading import read_all
from tcm.data.stream import derived_generator
from tcm.data.strong_views import PHOTOGRAPHS, SMALL_IMAGES, Strength, random_strong_parameters, strong_views
from tcm.data.task import DataConfig

AT_ONCE = 64
VIEWS = 3  # weak views and strong views that are shown of each image


class SampleViews(NamedTuple):
    """Images of a domain and their views, uint8 [m, crop, crop, 3] and [m, VIEWS, crop, crop, 3]."""

    domain: str
    classes: list[str]  # of each image; "" if unknown
    originals: NDArray[np.uint8]  # centre crops, as evaluation sees them
    weak: NDArray[np.uint8]
    strong: NDArray[np.uint8]


def samples_of(images: Tensor, domain: str, classes: list[str], config: DataConfig) -> SampleViews:
    """The views of uint8 images [m, size, size, 3] as a training run with this config sees them."""
    crop, size = config.view.crop, images.shape[1]
    centres = centre_crops(len(images), size, crop)
    originals = crop_images(images, crop_pixels(torch.arange(len(images)), centres, size, crop))
    weak = [as_stored(weak_samples(images, config, seed)) for seed in range(VIEWS)]
    strong = [as_stored(strong_samples(images, config, crop, seed)) for seed in range(VIEWS)]
    made = (torch.stack(views, dim=1).numpy() for views in (weak, strong))
    return SampleViews(domain, classes, originals.numpy(), *made)


def read_rows(domain: Domain, rows: Tensor, size: int, quiet: bool = False) -> tuple[Tensor, Tensor]:
    """Some images of a domain, uint8 [m, size, size, 3], and their rows [m]; files that cannot be read are left out."""

    def read(path: Path) -> NDArray[np.uint8] | None:
        try:
            return resized(decode(path), size)
        except BadImage:
            return None

    files = [domain.root / domain.paths[row] for row in rows.tolist()]
    found = list(read_all(read, files, f"reading {domain.name}", quiet=quiet))
    kept = torch.tensor([pixels is not None for pixels in found], dtype=torch.bool)
    images = [torch.from_numpy(pixels.copy()) for pixels in found if pixels is not None]
    return torch.stack(images) if images else torch.zeros(0, size, size, 3, dtype=torch.uint8), rows[kept]


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
