"""Views: an image and its counterfactuals, which stage 2 passes through the network together."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tcm.data.batch import Batch


class Views(NamedTuple):
    """Images, features or logits of both domains: on the first axis the images, then their counterfactuals."""

    source: Tensor  # [1 + source counterfactuals, batch, ...]
    target: Tensor  # [1 + target counterfactuals, batch, ...]

    @property
    def flat(self) -> Tensor:
        """All views in one batch."""
        return torch.cat([part.flatten(0, 1) for part in self])

    def like(self, flat: Tensor) -> "Views":
        """The output of a network on `flat`, in the order of these views."""
        parts = flat.split([part.shape[:2].numel() for part in self])
        source, target = (new.unflatten(0, part.shape[:2]) for new, part in zip(parts, self, strict=True))
        return Views(source, target)


def all_views(batch: Batch) -> Views:
    """The images of a batch and all k counterfactuals of each."""
    assert batch.counterfactuals is not None
    made = batch.counterfactuals
    return Views(with_counterfactuals(batch.source, made.source), with_counterfactuals(batch.target, made.target))


def sampled_views(batch: Batch, source: int, target: int) -> Views:
    """The images of a batch and `source` or `target` counterfactuals of each, by random mechanisms."""
    assert batch.counterfactuals is not None
    made = sampled(batch.counterfactuals.source, source), sampled(batch.counterfactuals.target, target)
    return Views(with_counterfactuals(batch.source, made[0]), with_counterfactuals(batch.target, made[1]))


def features_of(network: Callable[[Tensor], Tensor], kinds: Sequence[Tensor], separate: bool) -> list[Tensor]:
    """The output of a network for batches of several kinds of images.

    `separate`: in one pass for each kind, so that batch normalisation sees only one kind at a time; otherwise in one
    pass for all.
    """
    if separate:
        return [network(images) for images in kinds]
    return list(network(torch.cat([*kinds])).split([len(images) for images in kinds]))


def with_counterfactuals(images: Tensor, made: Tensor) -> Tensor:
    """Images [batch, ...] and their counterfactuals [k, batch, ...] as views [1 + k, batch, ...]."""
    return torch.cat([images[None], made])


def sampled(made: Tensor, count: int) -> Tensor:
    """`count` random counterfactuals of each image: [k, batch, ...] -> [count, batch, ...]."""
    k, batch = made.shape[:2]
    chosen = torch.randint(k, (count, batch), device=made.device)
    return made[chosen, torch.arange(batch, device=made.device)]
