"""The four style factors of a digit image, estimated from its pixels: which of them a mechanism changes, and how much.

The estimators are quadratic in a few statistics of an image. They are fitted to digits rendered with a wider range of
factors than either domain has, so that they hold for both domains and for images in between. The tests compare them
with the stored factors of the built-in data, to which they were not fitted.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tcm.data import digits

Array = NDArray[np.float64]

# The ranges of the factors to which the estimators are fitted, in the order of digits.FACTORS.
LOW = np.array([-0.25, 0.3, -1.5, -2.6])
HIGH = np.array([0.4, 1.4, 1.5, 0.0])
RENDERED = 4000  # images to which they are fitted
RIDGE = 1e-4


def estimated_factors(images: NDArray[np.uint8]) -> Array:
    """Factors [n, 4], in the order of `digits.FACTORS`, of images [n, 32, 32, 3]."""
    weights, mean, scale = _fitted()
    return _design((statistics(images) - mean) / scale) @ weights


def statistics(images: NDArray[np.uint8]) -> Array:
    """The inputs of the estimators [n, 12]: levels, spreads, colour and edges of each image."""
    from scipy.ndimage import gaussian_filter

    x = images.astype(np.float64) / 255
    # The margin of two pixels never shows the digit: it has the level and the colour of the background.
    margin = np.concatenate([x[:, :2].reshape(len(x), -1, 3), x[:, -2:].reshape(len(x), -1, 3)], axis=1).mean(axis=1)
    red, green, blue = x.mean(axis=(1, 2)).T
    smooth = gaussian_filter(x[..., 1], (0, 1, 1))
    low, middle, high = np.percentile(smooth, [5, 50, 97], axis=(1, 2))
    fine, coarse = (edge_energy(gaussian_filter(x[..., 1], (0, s, s))) for s in (0.7, 1.5))
    levels = [margin[:, 1], green, low, middle, high, smooth.std(axis=(1, 2))]
    colour = [np.log((red + 0.02) / (green + 0.02)), np.log((blue + 0.02) / (green + 0.02))]
    colour += [np.log((margin[:, 0] + 0.02) / (margin[:, 2] + 0.02))]
    contrast = smooth.std(axis=(1, 2)) + 0.01
    return np.stack(
        [*levels, *colour, np.log(fine / contrast), np.log(coarse / contrast), np.log(fine / coarse)], axis=1
    )


def edge_energy(grey: Array) -> Array:
    """Root mean square of the differences between neighbouring pixels: [n, h, w] -> [n]."""
    across, down = np.diff(grey, axis=1), np.diff(grey, axis=2)
    return np.sqrt((across**2).mean(axis=(1, 2)) + (down**2).mean(axis=(1, 2))) + 1e-4


def _design(z: Array) -> Array:
    """A constant, the statistics, and their products in pairs."""
    first, second = np.triu_indices(z.shape[1])
    return np.concatenate([np.ones((len(z), 1)), z, z[:, first] * z[:, second]], axis=1)


@lru_cache(maxsize=1)
def _fitted() -> tuple[Array, Array, Array]:
    """Weights, and the mean and scale of the statistics, fitted by ridge regression to freshly rendered digits."""
    rng = np.random.default_rng(digits.DATA_SEED)
    factors = rng.uniform(LOW, HIGH, (RENDERED, len(digits.FACTORS)))
    shapes = np.concatenate([digits.shapes(side)[0] for side in ("source", "target")])
    chosen = shapes[rng.integers(len(shapes), size=RENDERED)]
    images = digits.render(chosen, factors, rng.normal(size=(*chosen.shape, 3)))
    found = statistics(images)
    mean, scale = found.mean(axis=0), found.std(axis=0)
    x = _design((found - mean) / scale)
    weights = np.linalg.solve(x.T @ x + RIDGE * RENDERED * np.eye(x.shape[1]), x.T @ factors)
    return weights.astype(np.float64), mean, scale
