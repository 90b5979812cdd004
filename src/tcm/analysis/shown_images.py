"""Which images a figure of activation maps shows, and how many such images there are."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from tcm.errors import InputError
from tcm.mechanisms.image_grid import spread_over_classes

Shown = Literal["differ", "wrong"]


def target_images(
    guesses: Sequence[Tensor], labels: Tensor, count: int, titles: Sequence[str], shown: Shown = "differ"
) -> tuple[Tensor, str]:
    """Indices of at most `count` target images, and how many there are of their kind, in words.

    `guesses` are the predicted classes [n] of each run. `differ`: images that only one run gets right, as many of each
    run as possible; without labels, images on which the runs disagree. `wrong`: images that all runs get wrong.
    """
    known = bool((labels >= 0).any())
    if shown == "wrong":
        if not known:
            raise InputError("show", "is wrong, but the target has no labels; leave it out")
        return _all_wrong(guesses, labels, count, titles)
    return (_right_once if known else _disagreed)(guesses, labels, count, titles)


def _right_once(guesses: Sequence[Tensor], labels: Tensor, count: int, titles: Sequence[str]) -> tuple[Tensor, str]:
    right = torch.stack([guess == labels for guess in guesses])
    kinds = [(one & (right.sum(dim=0) == 1)).nonzero().flatten() for one in right]
    sizes = [len(kind) for kind in kinds]
    _require_some(sum(sizes), titles)
    parts = [_spread(kind, labels, quota) for kind, quota in zip(kinds, quotas(sizes, count), strict=True)]
    first, *others = (f"only {title} {size}" for title, size in zip(titles, sizes, strict=True))
    first = first.replace(titles[0], f"{titles[0]} classifies", 1) + " correctly"
    listed = " and ".join([", ".join([first, *others[:-1]]), *others[-1:]])
    return torch.cat(parts), f"Of {int((labels >= 0).sum())} images, {listed}."


def _all_wrong(guesses: Sequence[Tensor], labels: Tensor, count: int, titles: Sequence[str]) -> tuple[Tensor, str]:
    wrong = torch.stack([(guess != labels) & (labels >= 0) for guess in guesses]).all(dim=0).nonzero().flatten()
    if not len(wrong):
        raise InputError(f"no target image is wrong in all of {_joined(titles)}; name other runs")
    total = int((labels >= 0).sum())
    return _spread(wrong, labels, count), f"Of {total} images, {len(wrong)} are classified wrongly by all runs."


def _disagreed(guesses: Sequence[Tensor], labels: Tensor, count: int, titles: Sequence[str]) -> tuple[Tensor, str]:
    differ = torch.stack([guess != guesses[0] for guess in guesses]).any(dim=0).nonzero().flatten()
    _require_some(len(differ), titles)
    return _spread(differ, guesses[0], count), f"They disagree on {len(differ)} of {len(labels)} images."


def source_images(labels: Tensor, classes: Sequence[int], count: int) -> Tensor:
    """Indices of `count` source images: first one of each of these classes, then images of other classes."""
    wanted = [(labels == one).nonzero().flatten()[:1] for one in dict.fromkeys(classes)]
    others = spread_over_classes(labels, min(count + len(wanted), len(labels)))
    numbers = dict.fromkeys(torch.cat([*wanted, others]).tolist())
    return torch.tensor(list(numbers)[:count], dtype=torch.long)


def quotas(sizes: Sequence[int], count: int) -> list[int]:
    """How many to take of each kind, of which there are so many: one after another in turns, `count` in all."""
    taken = [0] * len(sizes)
    while sum(taken) < min(count, sum(sizes)):
        for number, size in enumerate(sizes):
            taken[number] += taken[number] < size and sum(taken) < count
    return taken


def _spread(numbers: Tensor, classes: Tensor, count: int) -> Tensor:
    return numbers[spread_over_classes(classes[numbers], count)] if len(numbers) and count else numbers[:0]


def _require_some(count: int, titles: Sequence[str]) -> None:
    if not count:
        raise InputError(f"{_joined(titles)} do not differ on any target image; name runs that do")


def _joined(titles: Sequence[str]) -> str:
    return " and ".join([", ".join(titles[:-1]), titles[-1]])
