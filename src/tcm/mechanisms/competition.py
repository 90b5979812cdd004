"""Which mechanism learns from which image: the one that transports it best (TCM Eq. (2))."""

from typing import NamedTuple

import torch
from torch import Tensor


class Terms(NamedTuple):
    """The parts of the loss of one mechanism for each image: [batch] each."""

    adversarial: Tensor
    cycle: Tensor
    identity: Tensor

    def total(self, cycle_weight: float, identity_weight: float) -> Tensor:
        """L_adv + alpha_1 L_cyc + alpha_2 L_idt (TCM Section A.3.1): [batch]."""
        return self.adversarial + cycle_weight * self.cycle + identity_weight * self.identity


def winners(losses: Tensor) -> Tensor:
    """The mechanism with the smallest loss for each image: [k, batch] -> [batch] (TCM Eq. (2))."""
    return losses.argmin(dim=0)


def random_assignment(batch: int, k: int) -> Tensor:
    """A random mechanism for each image: [batch]. The numbers of images per mechanism differ by at most one."""
    return (torch.randperm(batch) + torch.randint(k, ())) % k
