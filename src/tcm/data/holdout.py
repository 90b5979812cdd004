"""Labelled source images that training never sees, so that accuracy on them measures more than memory."""

import torch
from torch import Tensor

from tcm.data.store import ImageStore
from tcm.data.stream import derived_generator
from tcm.errors import InputError, printable

MOST = 0.9


def require_share(share: float) -> None:
    """An error unless `share` lies between 0 and MOST, which leaves something to train on."""
    if not 0 <= share <= MOST:
        raise InputError("held_out", f"is {share}; give a share from 0 to {MOST}")


def held_out_images(store: ImageStore, share: float, seed: int) -> Tensor:
    """Which images are held out, bool [n]: that share of each class, rounded, drawn with the seed."""
    held_out = torch.zeros(len(store), dtype=torch.bool)
    for label, name in enumerate(store.classes):
        members = (store.labels == label).nonzero().flatten()
        count = int(share * len(members) + 0.5)
        if count and count == len(members):
            found = f"{share} leaves no image of {printable(name)} to train on"
            raise InputError("held_out", f"{found}: {printable(store.name)} has {count}; lower it or add images")
        order = torch.randperm(len(members), generator=derived_generator(seed, "held out", label))
        held_out[members[order[:count]]] = True
    if share and not held_out.any():
        found = f"{share} holds out no image of {printable(store.name)}: its classes are too small"
        raise InputError("held_out", f"{found}; raise it or add images")
    return held_out
