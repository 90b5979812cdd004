"""Images with the same bytes, found by their hashes: arrays, as a data set may have a million images."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

HASH = np.dtype("S32")  # of one image: 32 hexadecimal digits


def same_content(hashes: NDArray[np.bytes_]) -> list[list[int]]:
    """The rows of each hash that occurs more than once, in the order of their first rows."""
    _, number, count = np.unique(hashes, return_inverse=True, return_counts=True)
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for row in (count[number] > 1).nonzero()[0].tolist():
        groups[int(number[row])].append(row)
    return list(groups.values())


def same_content_in_several(parts: Sequence[NDArray[np.bytes_]]) -> list[list[tuple[int, int]]]:
    """The same for several sets of images: only contents of at least two sets, as pairs of set and row."""
    starts = np.cumsum([0, *map(len, parts)])
    groups = same_content(np.concatenate([np.empty(0, HASH), *parts]))
    placed = [[_divided(starts, row) for row in rows] for rows in groups]
    return [group for group in placed if len({part for part, _ in group}) > 1]


def _divided(starts: NDArray[np.int64], row: int) -> tuple[int, int]:
    """The set that holds the row of the concatenation, and the row in it."""
    part = int(np.searchsorted(starts, row, side="right")) - 1
    return part, row - int(starts[part])
