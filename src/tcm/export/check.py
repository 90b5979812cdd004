"""Whether an exported file computes what its run computes, on real images."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tcm.classifier.inputs import image_paths, read_pixels
from tcm.classifier.selection import evenly_spaced
from tcm.data.images import BadImage
from tcm.data.task import DataConfig, load_task, read_domains
from tcm.errors import InputError, printable
from tcm.mechanisms.pair import SIDES, Side
from tcm.progress import ProgressDisplay

LIMIT = 1e-3  # largest difference that rounding may explain
BATCH = 16


class RealImages(NamedTuple):
    """Images for a check."""

    pixels: Tensor  # uint8 [n, size, size, 3]
    origin: str  # where they come from


class Checked(NamedTuple):
    """How far the outputs of a file are from those of its run."""

    largest: float  # largest absolute difference of an output: a probability, or a pixel in [0, 1]
    images: int
    origin: str

    @property
    def passed(self) -> bool:
        """Whether the difference is one of rounding; NaN is not."""
        return math.isfinite(self.largest) and self.largest <= LIMIT


def compare(
    found: Callable[[Tensor], Tensor], expected: Callable[[Tensor], Tensor], images: RealImages, quiet: bool
) -> Checked:
    """The largest difference of two functions of stored images, uint8 [n, size, size, 3], over all images."""
    largest = 0.0
    with ProgressDisplay("checking", len(images.pixels), unit="image", quiet=quiet) as display:
        # One image alone first: a file must take any number of them.
        for batch in (images.pixels[:1], *images.pixels[1:].split(BATCH)):
            difference = float((found(batch).float() - expected(batch).float()).abs().max())
            largest = max(largest, difference) if math.isfinite(largest + difference) else math.nan
            display.update(display.done + len(batch))
    return Checked(largest, len(images.pixels), images.origin)


def real_images(data: DataConfig, side: Side, folder: Path | None, count: int) -> RealImages:
    """At most `count` images of one domain of a run, or of a folder, evenly spread and as training stores them."""
    size = data.sides[0]
    if folder is not None:
        return RealImages(read_some([folder / path for path in image_paths(folder)], size, count), folder.name)
    try:
        if data.is_digits:
            store = load_task(data, quiet=True)[SIDES.index(side)]
            return RealImages(evenly_spaced(store.images, count), store.name)
        domain = read_domains(data)[SIDES.index(side)]
        return RealImages(read_some([domain.root / path for path in domain.paths], size, count), domain.name)
    except InputError as error:
        reason = f"is not given, and the {side} images of the run cannot be read ({error})"
        raise InputError("images", f"{reason}; name a folder of images for the check") from error


def read_some(files: Sequence[Path], size: int, count: int) -> Tensor:
    """At most `count` of the files as uint8 [n, size, size, 3], evenly spread, without those that cannot be read."""
    chosen = [files[index] for index in evenly_spaced(torch.arange(len(files)), count).tolist()]
    read = [read_pixels(file, size) for file in chosen]
    pixels = [found for found in read if not isinstance(found, BadImage)]
    if not pixels:
        raise InputError(f"{printable(chosen[0])} cannot be read ({printable(read[0])}); check it")
    return torch.from_numpy(np.stack(pixels))
