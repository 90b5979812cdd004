"""An image and its counterfactuals: what stage 2 looks at together."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tcm.data.batch import Batch

Mixing = Literal["one", "several", "none"]


class Views(NamedTuple):
    """Something about both domains' images and their counterfactuals, which stand behind them on the first axis."""

    source: Tensor  # [1 + source counterfactuals, batch, ...]
    target: Tensor  # [1 + target counterfactuals, batch, ...]

    @property
    def flat(self) -> Tensor:
        """All of them in one batch."""
        return torch.cat([part.flatten(0, 1) for part in self])

    def like(self, flat: Tensor) -> "Views":
        """What a network made of `flat`, in this order."""
        parts = flat.split([part.shape[:2].numel() for part in self])
        source, target = (new.unflatten(0, part.shape[:2]) for new, part in zip(parts, self, strict=True))
        return Views(source, target)


def drawn_views(batch: Batch, source: int | None, target: int | None, mixing: Mixing) -> Views:
    """The images of a batch and so many counterfactuals of each; None takes all k as they are."""
    assert batch.counterfactuals is not None
    made = zip((batch.source, batch.target), batch.counterfactuals, (source, target), strict=True)
    return Views(
        *(torch.cat([images[None], drawn(images, all_made, count, mixing)]) for images, all_made, count in made)
    )


def drawn(images: Tensor, made: Tensor, count: int | None, mixing: Mixing) -> Tensor:
    """So many counterfactuals [count, batch, ...] of each image, out of its k [k, batch, ...].

    one: each is one mechanism's. several: each has the changes of all mechanisms, every one at a strength drawn from
    [0, 1] (mechanisms that share the way are made to be put together). none: the image itself, for a control without
    mechanisms.
    """
    if mixing == "none":
        return images.expand(len(made) if count is None else count, *images.shape)
    if count is None:
        return made
    k, batch = made.shape[:2]
    if mixing == "one":
        chosen = torch.randint(k, (count, batch), device=made.device)
        return made[chosen, torch.arange(batch, device=made.device)]
    strength = torch.rand(count, k, batch, 1, 1, 1, device=made.device, dtype=made.dtype)
    return (images + (strength * (made - images)).sum(dim=1)).clamp(0, 1)


def predicted_views(images: Tensor, made: Tensor, mixing: Mixing) -> Tensor:
    """The views [views, batch, ...] over which a prediction is averaged: the image, its k counterfactuals and, where
    mechanisms are put together, the image with all their changes."""
    views = [images[None], made]
    if mixing == "several":
        views.append((images + (made - images).sum(dim=0)).clamp(0, 1)[None])
    return torch.cat(views)
