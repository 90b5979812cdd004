"""A few images of each domain with all their counterfactuals: what Figure 4 of the paper shows."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from tcm.data.store import ImageStore
from tcm.data.task import Task
from tcm.errors import InputError
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.counterfactual_store import open_counterfactuals
from tcm.mechanisms.pair import SIDES, Side
from tcm.mechanisms.transport import counterfactuals, open_for_transport, weights_hash

CANDIDATES = 4  # images looked at for each one shown, so that several winners can be shown
AT_ONCE = 8  # images transported together


class Gallery(NamedTuple):
    """Images of one domain, carried to the other by all k mechanisms; sorted by the winner."""

    origin: Side
    domain: str  # where the images are from
    other: str  # where they were carried to
    originals: NDArray[np.uint8]  # [m, side, side, 3]
    made: NDArray[np.uint8]  # [m, k, side, side, 3]
    winner: NDArray[np.int64]  # [m]
    classes: list[str]  # of each image; empty where unknown


def run_galleries(folder: Path, images: int, device: str = "auto", quiet: bool = False) -> list[Gallery]:
    """The galleries of a finished run; nothing but the few images is transported."""
    if images < 1:
        raise InputError(f"--images is {images}; give 1 or more")
    ready = open_for_transport(folder, device, quiet)
    return galleries(ready.fabric, ready.bank, ready.task, images)


def galleries(fabric: Fabric, bank: MechanismBank, task: Task, images: int) -> list[Gallery]:
    """That many images of the source and of the target; the same for the same run and data."""
    found = []
    for origin, store, other in zip(SIDES, task, reversed(task), strict=True):
        candidates = spread_over_classes(store.labels, CANDIDATES * images)
        some = store.images[candidates]
        parts = [counterfactuals(fabric, bank, origin, part.to(fabric.device)) for part in some.split(AT_ONCE)]
        made, winner, _ = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
        shown = varied(winner.tolist(), store.labels[candidates].tolist(), images)
        names = [_class_name(store, int(candidates[i])) for i in shown]
        originals, chosen = some[shown].numpy(), made[shown].numpy()
        found.append(Gallery(origin, store.name, other.name, originals, chosen, winner[shown].numpy(), names))
    return found


def stored_galleries(folder: Path, task: Task, images: int) -> list[Gallery]:
    """The same from the images that `transport` wrote for the finished run in `folder`: no network runs.

    An error unless they are complete and were made by these mechanisms from these images.
    """
    found, mechanisms = [], weights_hash(folder)
    for origin, store, other in zip(SIDES, task, reversed(task), strict=True):
        stored = open_counterfactuals(folder / "transported" / origin, store, mechanisms=mechanisms, run=folder)
        candidates = spread_over_classes(store.labels, CANDIDATES * images)
        shown = candidates[varied(stored.winner[candidates].tolist(), store.labels[candidates].tolist(), images)]
        names = [_class_name(store, number) for number in shown.tolist()]
        originals, made, winner = (part[shown].numpy() for part in (store.images, stored.images, stored.winner))
        found.append(Gallery(origin, store.name, other.name, originals, made, winner, names))
    return found


def spread_over_classes(labels: Tensor, count: int) -> Tensor:
    """Numbers of at most `count` images, class by class in turn; each class's are spread evenly over it."""
    groups = [(labels == label).nonzero().flatten() for label in labels.unique()]
    turns = -(-count // len(groups))
    evenly = [group[torch.linspace(0, len(group) - 1, min(turns, len(group))).long()].tolist() for group in groups]
    in_turn = [group[turn] for turn in range(turns) for group in evenly if turn < len(group)]
    return torch.tensor(in_turn[:count])


def varied(winners: list[int], classes: list[int], count: int) -> list[int]:
    """Places of `count` images among the candidates: winners as even as can be, then classes; sorted by winner."""
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
