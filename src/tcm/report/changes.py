"""What a mechanism does to images, in words: darker, less colour, more contrast. Pure functions of pixels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # [n, height, width, 3]

LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601: how bright red, green and blue look
HARDLY = 0.015  # mean absolute change of a pixel, as a share of its range, that nobody sees
SWAPPED, RESHAPED = -0.3, 0.5  # correlations of brightness with the original
SLIGHT, STRONG = 1.0, 6.0  # levels of a change, in units of its smallest visible size
MOST = 3  # words in a description


class ImageChanges(NamedTuple):
    """The mean change from images to their counterfactuals. Shares of the range of a pixel unless stated."""

    brightness: float  # difference of the mean luma
    colour: float  # difference of the mean chroma, the largest of red, green and blue minus the smallest
    contrast: float  # log of the ratio of the standard deviations of luma
    sharpness: float  # log of the ratio of mean edges, relative to the contrast
    red: float  # difference of red minus green
    blue: float  # difference of blue minus the mean of red and green
    pixels: float  # mean absolute difference
    likeness: float  # mean correlation of luma, 1: the same shapes, -1: light and dark swapped


# The words for more and for less, and the smallest change that is visible.
_WORDS = {
    "brightness": ("brighter", "darker", 0.03),
    "colour": ("more colour", "less colour", 0.03),
    "contrast": ("more contrast", "less contrast", 0.10),
    "sharpness": ("sharper", "smoother", 0.12),
    "red": ("redder", "greener", 0.03),
    "blue": ("bluer", "yellower", 0.03),
}


def image_changes(before: Pixels, after: Pixels) -> ImageChanges:
    """The mean change over pairs of images of one size."""
    first, second = (images.astype(np.float64) / 255 for images in (before, after))
    light = [images @ LUMA for images in (first, second)]
    spread = [np.maximum(part.std(axis=(1, 2)), 1e-3) for part in light]
    edges = [np.maximum(_edges(part) / own, 1e-3) for part, own in zip(light, spread, strict=True)]
    centred = [part - part.mean(axis=(1, 2), keepdims=True) for part in light]
    likeness = (centred[0] * centred[1]).mean(axis=(1, 2)) / (spread[0] * spread[1])
    return ImageChanges(
        brightness=float((light[1] - light[0]).mean()),
        colour=float((_chroma(second) - _chroma(first)).mean()),
        contrast=float(np.log(spread[1] / spread[0]).mean()),
        sharpness=float(np.log(edges[1] / edges[0]).mean()),
        red=float((second[..., 0] - second[..., 1] - first[..., 0] + first[..., 1]).mean()),
        blue=float((_blueness(second) - _blueness(first)).mean()),
        pixels=float(np.abs(second - first).mean()),
        likeness=float(likeness.mean()),
    )


def described(changes: ImageChanges) -> str:
    """The changes in words, the strongest first: "much darker, less colour, slightly smoother"."""
    if changes.pixels < HARDLY:
        return "hardly any change"
    found = []
    for name, (more, less, visible) in _WORDS.items():
        size = getattr(changes, name) / visible
        if abs(size) >= SLIGHT:
            level = "much " if abs(size) >= STRONG else "slightly " if abs(size) < 2 * SLIGHT else ""
            found.append((abs(size), level + (more if size > 0 else less)))
    words = [word for _, word in sorted(found, key=lambda item: -item[0])][:MOST]
    if changes.likeness < SWAPPED:
        words = ["light and dark swapped", *words][:MOST]
    elif changes.likeness < RESHAPED:
        words = ["other shapes", *words][:MOST]
    return ", ".join(words) or "small local changes"


def _chroma(images: NDArray[np.float64]) -> NDArray[np.float64]:
    return images.max(axis=-1) - images.min(axis=-1)


def _blueness(images: NDArray[np.float64]) -> NDArray[np.float64]:
    return images[..., 2] - images[..., :2].mean(axis=-1)


def _edges(light: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean absolute difference of neighbouring pixels of each image, [n]."""
    return np.abs(np.diff(light, axis=1)).mean(axis=(1, 2)) + np.abs(np.diff(light, axis=2)).mean(axis=(1, 2))
