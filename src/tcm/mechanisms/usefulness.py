"""Which mechanisms bring images nearer to the other domain. The answer needs no labels."""

from typing import NamedTuple

import torch
from torch import Tensor

from tcm.data.task import Task
from tcm.mechanisms.distance import features, frechet_distance
from tcm.nn.backbone import Backbone
from tcm.training.device import Compute

IMAGES = 500  # of each domain, and of the counterfactuals of each mechanism
NEARER = 0.9  # a useful mechanism leaves at most this share of the distance between the domains


class Distances(NamedTuple):
    """Frechet distances in the features of a network: between the domains, and after transport to the other domain."""

    untouched: float
    from_source: list[float]  # of M_i(x_s) to the target, one per mechanism
    from_target: list[float]  # of M_i^-1(x_t) to the source

    @property
    def useful(self) -> tuple[list[int], list[int]]:
        """The mechanisms that bring source images nearer to the target, and those that bring target images nearer to
        the source."""
        most = NEARER * self.untouched
        source, target = (
            [number for number, distance in enumerate(side) if distance <= most]
            for side in (self.from_source, self.from_target)
        )
        return source, target


def measure_distances(
    fabric: Compute, backbone: Backbone, task: Task, transported: tuple[Tensor, Tensor], crop: int
) -> Distances:
    """The distances of at most IMAGES images of each domain, at even distances in its store; `transported` are their
    counterfactuals on disk. The backbone must be on the device and in evaluation mode."""
    chosen = [torch.linspace(0, len(store) - 1, min(IMAGES, len(store))).long() for store in task]
    before = [features(fabric, backbone, store.images[rows], crop) for store, rows in zip(task, chosen, strict=True)]
    after = [
        [
            frechet_distance(features(fabric, backbone, made[chosen[side], number], crop), before[1 - side])
            for number in range(made.shape[1])
        ]
        for side, made in enumerate(transported)
    ]
    return Distances(frechet_distance(before[0], before[1]), after[0], after[1])


def usefulness_remark(distances: Distances) -> str:
    """A sentence for the directions in which no mechanism is useful; empty if there is none."""
    ways = ("source images nearer to the target", "target images nearer to the source")
    without = [way for way, useful in zip(ways, distances.useful, strict=True) if not useful]
    if not without:
        return ""
    return f"no mechanism brings {' or '.join(without)}: these counterfactuals were not used; a longer stage 1 may help"
