"""What is measured of the counterfactuals on disk, for the judgement of the mechanisms. Target labels play no part."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tcm.data.store import ImageStore
from tcm.data.task import Task
from tcm.mechanisms.distance import features, frechet_distance
from tcm.mechanisms.pair import SIDES, Side
from tcm.nn.backbone import Backbone
from tcm.training.device import Compute
from tcm.training.source_probe import (
    Predictor,
    Recognition,
    cross_validated,
    folds_of,
    linear_probe,
    recognition,
    resampled,
    small_network,
    stratified,
)

IMAGES = 500  # of each domain whose features are compared, and of the counterfactuals of each mechanism
COMPARED = 100  # images of each domain whose pixels are compared
KNOWN = 900  # source images that a small network learns and is asked about
FLAT = 0.03  # standard deviation of the pixels, in [0, 1], below which an image is blank
FLATTER = 0.25  # of the original's: blank images stay as they were


class Pixels(NamedTuple):
    """How the counterfactuals of k mechanisms differ from their originals and from each other."""

    change: Tensor  # [k], mean absolute difference from the original, in [0, 1]
    blank: Tensor  # [k], share of images that became blank
    apart: Tensor  # [k, k], mean absolute difference between mechanisms


class Distances(NamedTuple):
    """Frechet distances in the features of a network: between the domains, and after transport to the other domain."""

    untouched: float
    from_source: list[float]  # of M_i(x_s) to the target, one per mechanism
    from_target: list[float]  # of M_i^-1(x_t) to the source


@dataclass(frozen=True)
class Measurements:
    """Everything that the judgement needs."""

    wins: dict[Side, list[float]] | None  # shares of images; None if winners play no part in training
    pixels: dict[Side, Pixels]
    recognised: list[Recognition]  # of M_i(x_s), by a classifier of source images
    agreement: list[float]  # Cohen's kappa of its answers on x_t and M_i^-1(x_t)
    distances: Distances | None  # None without pretrained features


def measure(
    fabric: Compute,
    backbone: Backbone | None,
    task: Task,
    transported: tuple[Tensor, Tensor],
    crop: int,
    winner: tuple[Tensor, Tensor] | None = None,
    show: Callable[[int], None] = lambda done: None,
) -> Measurements:
    """The measurements of counterfactuals `transported` [n, k, size, size, 3] of both domains.

    `backbone` is a pretrained network on the device and in evaluation mode; without one, a small network is trained on
    source images. `winner` has the mechanism that won each image, if mechanisms compete.
    """
    k = transported[0].shape[1]
    wins: dict[Side, list[float]] | None = None
    if winner is not None:
        counts = [torch.bincount(won, minlength=k) / len(won) for won in winner]
        wins = {side: shares.tolist() for side, shares in zip(SIDES, counts, strict=True)}
    pixels: dict[Side, Pixels] = {
        side: compared_pixels(store, made) for side, store, made in zip(SIDES, task, transported, strict=True)
    }
    if backbone is None:
        return Measurements(wins, pixels, *asked_small_network(task, transported), None)
    return Measurements(wins, pixels, *asked_features(fabric, backbone, task, transported, crop, show))


def evenly(store: ImageStore, count: int) -> Tensor:
    """At most `count` rows at even distances in a store."""
    return torch.linspace(0, len(store) - 1, min(count, len(store))).long()


def compared_pixels(store: ImageStore, made: Tensor) -> Pixels:
    """The differences of COMPARED images, of their counterfactuals [n, k, size, size, 3] and between those."""
    rows = evenly(store, COMPARED)
    k, change, flat = made.shape[1], [], []
    apart = torch.zeros(k, k)
    for row in rows.tolist():
        original, images = store.images[row].float() / 255, made[row].float() / 255
        change.append((images - original).abs().mean(dim=(1, 2, 3)))
        deviation = images.flatten(1).std(dim=1)
        flat.append((deviation < FLAT) & (deviation < FLATTER * original.std()))
        apart += (images[:, None] - images[None]).abs().mean(dim=(2, 3, 4)) / len(rows)
    return Pixels(torch.stack(change).mean(dim=0), torch.stack(flat).float().mean(dim=0), apart)


def asked_features(
    fabric: Compute,
    backbone: Backbone,
    task: Task,
    transported: tuple[Tensor, Tensor],
    crop: int,
    show: Callable[[int], None],
) -> tuple[list[Recognition], list[float], Distances]:
    """What a linear classifier on the features of a pretrained network recognises, and the distances between them."""
    chosen = [evenly(store, IMAGES) for store in task]
    done = 0

    def seen(images: Tensor) -> Tensor:
        nonlocal done
        found, done = features(fabric, backbone, images, crop), done + len(images)
        show(done)
        return found

    before = [seen(store.images[rows]) for store, rows in zip(task, chosen, strict=True)]
    after = [
        [seen(made[rows, i]) for i in range(made.shape[1])] for made, rows in zip(transported, chosen, strict=True)
    ]
    near = [[frechet_distance(part, before[1 - side]) for part in after[side]] for side in (0, 1)]
    labels = task.source.labels[chosen[0]]
    views = {"plain": before[0], **{str(i): part for i, part in enumerate(after[0])}}
    found = cross_validated(before[0], labels, views, linear_probe)
    recognised = [recognition(labels, found["plain"], found[str(i)]) for i in range(len(after[0]))]
    predict = linear_probe(before[0], labels)
    agreement = [kappa(predict(before[1]), predict(part)) for part in after[1]]
    return recognised, agreement, Distances(frechet_distance(before[0], before[1]), near[0], near[1])


def asked_small_network(task: Task, transported: tuple[Tensor, Tensor]) -> tuple[list[Recognition], list[float]]:
    """What a small network that learned shapes of source images recognises in other source images and in the target."""
    predict, rows = source_reader(SourceImages(task.source))
    labels, k = task.source.labels[rows], transported[0].shape[1]
    plain = predict(resampled(task.source.images[rows]))
    made = [predict(resampled(transported[0][rows, i])) for i in range(k)]
    others = evenly(task.target, IMAGES)
    there = predict(resampled(task.target.images[others]))
    back = [predict(resampled(transported[1][others, i])) for i in range(k)]
    return [recognition(labels, plain, part) for part in made], [kappa(there, part) for part in back]


class SourceImages:
    """A source domain that equals another one with the same images, so that its network is trained once."""

    def __init__(self, store: ImageStore):
        self.store, self.key = store, (store.fingerprint, tuple(store.labels.tolist()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceImages) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=1)
def source_reader(source: SourceImages) -> tuple[Predictor, Tensor]:
    """A small network that learned two thirds of some source images, and the rows of the other third."""
    store = source.store
    rows = stratified(store.labels, KNOWN)
    inside = folds_of(store.labels[rows]) == 0
    learned = rows[~inside]
    return small_network(resampled(store.images[learned]), store.labels[learned]), rows[inside]


def kappa(one: Tensor, other: Tensor) -> float:
    """Cohen's kappa of two predictions [n]: 1 if they agree, 0 if no more often than by chance."""
    agree = float((one == other).float().mean())
    classes = int(max(one.max(), other.max())) + 1
    shares = [torch.bincount(part, minlength=classes) / len(part) for part in (one, other)]
    chance = float((shares[0] * shares[1]).sum())
    return (agree - chance) / (1 - chance) if chance < 1 else 0.0
