"""A few images of each domain with all their counterfactuals, as in TCM Figure 4."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tcm.data.store import ImageStore
from tcm.data.task import Task
from tcm.errors import InputError
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.counterfactual_store import open_counterfactuals
from tcm.mechanisms.image_grid import spread_over_classes
from tcm.mechanisms.pair import SIDES, Side
from tcm.mechanisms.transport import counterfactuals, open_for_transport, weights_hash
from tcm.training.device import Compute

CANDIDATES = 4  # images transported for each one shown, so that several winners can be shown
AT_ONCE = 8  # images transported together


class Gallery(NamedTuple):
    """Images of one domain, transported to the other by all k mechanisms; sorted by the winner."""

    origin: Side
    domain: str  # name of the domain of the images
    other: str  # name of the domain that they were transported to
    originals: NDArray[np.uint8]  # [m, side, side, 3]
    counterfactuals: NDArray[np.uint8]  # [m, k, side, side, 3]
    winner: NDArray[np.int64]  # [m]
    classes: list[str]  # class of each image; "" if unknown


def run_galleries(folder: Path, images: int, device: str = "auto", quiet: bool = False) -> list[Gallery]:
    """The galleries of a finished run. Transports only the few images that they need."""
    if images < 1:
        raise InputError("images", f"is {images}; give 1 or more")
    setup = open_for_transport(folder, device, quiet)
    return galleries(setup.fabric, setup.bank, setup.task, images)


def galleries(fabric: Compute, bank: MechanismBank, task: Task, images: int) -> list[Gallery]:
    """One gallery of each domain with at most `images` images; the same for the same run and data."""
    found = []
    for origin, store, other in zip(SIDES, task, reversed(task), strict=True):
        candidates = spread_over_classes(store.labels, CANDIDATES * images)
        pixels = store.images[candidates]
        parts = [counterfactuals(fabric, bank, origin, part.to(fabric.device)) for part in pixels.split(AT_ONCE)]
        made, winner, _ = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
        shown = diverse_images(winner.tolist(), store.labels[candidates].tolist(), images)
        names = [_class_name(store, int(candidates[i])) for i in shown]
        originals, made, winner = (part[shown].numpy() for part in (pixels, made, winner))
        found.append(Gallery(origin, store.name, other.name, originals, made, winner, names))
    return found


def stored_galleries(folder: Path, task: Task, images: int) -> list[Gallery]:
    """The same from the images that `transport` wrote for the finished run in `folder`: no network runs.

    An error unless they are complete and were made by these mechanisms from these images.
    """
    found, mechanisms = [], weights_hash(folder)
    for origin, store, other in zip(SIDES, task, reversed(task), strict=True):
        stored = open_counterfactuals(folder / "transported" / origin, store, mechanisms=mechanisms, run=folder)
        candidates = spread_over_classes(store.labels, CANDIDATES * images)
        shown = candidates[
            diverse_images(stored.winner[candidates].tolist(), store.labels[candidates].tolist(), images)
        ]
        names = [_class_name(store, number) for number in shown.tolist()]
        originals, made, winner = (part[shown].numpy() for part in (store.images, stored.images, stored.winner))
        found.append(Gallery(origin, store.name, other.name, originals, made, winner, names))
    return found


def diverse_images(winners: list[int], classes: list[int], count: int) -> list[int]:
    """Indices of `count` candidates with winners as varied as possible, then classes; sorted by winner."""
    chosen: list[int] = []
    by_winner, by_class = Counter[int](), Counter[int]()
    left = list(range(len(winners)))
    while left and len(chosen) < count:
        best = min(left, key=lambda i: (by_winner[winners[i]], by_class[classes[i]], i))
        left.remove(best)
        chosen.append(best)
        by_winner[winners[best]] += 1
        by_class[classes[best]] += 1
    return sorted(chosen, key=lambda i: (winners[i], i))


def _class_name(store: ImageStore, number: int) -> str:
    label = int(store.labels[number])
    return store.classes[label] if label >= 0 else ""
