"""The built-in data: real handwritten digits in two domains, rendered by a known structural causal model.

scikit-learn's 1,797 digits are split into two disjoint halves; each image is rendered at 32 x 32 from the digit and
four style factors, named as in TCM Figure 4. Each factor has its own distribution in each domain. In the source the
colour temperature is also an effect of the class (as "background" is in TCM Figure 1), in the target it is not: a
classifier that uses the colour instead of the shape does well in the source and fails in the target.

    class ----------> temperature (source only)
    domain ---------> brightness, exposure, temperature, sharpness
    digit, factors -> image

The factors of every image are stored with it. They are for evaluation; no method sees them.
"""

import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

FACTORS = ("brightness", "exposure", "temperature", "sharpness")
CLASSES = tuple(str(digit) for digit in range(10))
SIZE = 32
NOISE = 0.08
DATA_SEED = 2021  # the year of the paper; the data never changes with the seed of a run

Side = Literal["source", "target"]
Array = NDArray[np.float64]


class Digits(NamedTuple):
    """One domain of the built-in data."""

    images: NDArray[np.uint8]  # [n, 32, 32, 3]
    labels: NDArray[np.int64]  # [n]
    factors: Array  # [n, 4], in the order of FACTORS; a sharpness of 0 is crisp and -2 a blur of two pixels
    numbers: NDArray[np.int64]  # [n], the index of each digit in scikit-learn's data set


class Normal(NamedTuple):
    """A normal distribution, clipped from below."""

    mean: float
    sd: float
    lowest: float = -np.inf

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """`count` draws."""
        return np.maximum(rng.normal(self.mean, self.sd, count), self.lowest)


# P(U | S): in what the domains differ. The source temperature is an effect of the class, see `sample_factors`.
BRIGHTNESS = {"source": Normal(0.0, 0.06), "target": Normal(0.12, 0.08)}
EXPOSURE = {"source": Normal(1.0, 0.10, 0.2), "target": Normal(0.6, 0.12, 0.2)}
BLUR = {"source": Normal(0.3, 0.15, 0.0), "target": Normal(1.4, 0.4, 0.0)}
TEMPERATURE_IN_TARGET = Normal(0.5, 0.5)
CONFOUNDED = 0.9  # share of source images whose temperature follows the class


def sample_factors(labels: NDArray[np.int64], side: Side, rng: np.random.Generator) -> Array:
    """Factors [n, 4] of images with these labels in that domain."""
    count = len(labels)
    temperature = TEMPERATURE_IN_TARGET.sample(rng, count)
    if side == "source":
        level = np.linspace(-1, 1, len(CLASSES))[class_order()][labels] + rng.normal(0, 0.08, count)
        temperature = np.where(rng.random(count) < CONFOUNDED, level, rng.uniform(-1, 1, count))
    columns = [
        BRIGHTNESS[side].sample(rng, count),
        EXPOSURE[side].sample(rng, count),
        temperature,
        -BLUR[side].sample(rng, count),
    ]
    return np.stack(columns, axis=1)


def class_order() -> NDArray[np.int64]:
    """The rank of each class on the temperature scale of the source: a fixed shuffle of 0 to 9."""
    return np.random.default_rng(DATA_SEED).permutation(len(CLASSES))


def render(digits: Array, factors: Array, noise: Array) -> NDArray[np.uint8]:
    """Images [n, 32, 32, 3] of digits [n, 32, 32] in [0, 1] under factors [n, 4] and pixel noise [n, 32, 32, 3].

    This is P(X | U): changing one column of `factors` and nothing else gives the true counterfactual.
    """
    from scipy.ndimage import gaussian_filter

    brightness, exposure, temperature, sharpness = (factors[:, i, None, None] for i in range(4))
    blurred = np.stack([gaussian_filter(d, -s.item()) for d, s in zip(digits, sharpness, strict=True)])
    grey = 0.5 + (0.25 + 0.5 * blurred - 0.5) * exposure + brightness
    warm = 0.45 * np.clip(temperature, -1.5, 1.5)
    rgb = np.stack([grey * (1 + warm), grey, grey * (1 - warm)], axis=-1) + NOISE * noise
    return np.round(255 * np.clip(rgb, 0, 1)).astype(np.uint8)


def domain(side: Side, style: Side | None = None) -> Digits:
    """The built-in domain; with `style`, its digits in the style of that domain, as digits-ceiling has them."""
    bare, labels, numbers = shapes(side)
    rng = np.random.default_rng([DATA_SEED, ("source", "target").index(side), style not in (None, side)])
    factors = sample_factors(labels, style or side, rng)
    noise = rng.normal(size=(*bare.shape, 3))
    return Digits(render(bare, factors, noise), labels, factors, numbers)


def shapes(side: Side) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """The digits [n, 32, 32] of one domain, their labels [n], and their indices [n] in scikit-learn's data set."""
    # Imported here: scikit-learn takes a second to load, and packed digits do not need it.
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    shuffled = np.random.default_rng(DATA_SEED).permutation(len(labels))
    half = len(labels) // 2
    numbers = np.sort(shuffled[:half] if side == "source" else shuffled[half:])
    # 8 x 8 -> 28 x 28, inside a margin of two pixels.
    small = np.reshape(images, (-1, 8, 8))[numbers] / 16
    large = np.clip(np.asarray(zoom(small, (1, 3.5, 3.5), order=1)), 0, 1)
    return np.pad(large, ((0, 0), (2, 2), (2, 2))), np.asarray(labels)[numbers].astype(np.int64), numbers


def fingerprint() -> str:
    """A hash of this file, so that packed digits are never out of date."""
    return hashlib.blake2b(Path(__file__).read_bytes(), digest_size=6).hexdigest()
