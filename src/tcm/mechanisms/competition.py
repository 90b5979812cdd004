"""Who learns from which image: the mechanism that transports it best (Eq. 2)."""

from typing import NamedTuple

import torch
from torch import Tensor


class Terms(NamedTuple):
    """The parts of a mechanism's loss for each image: [batch] each."""

    adversarial: Tensor
    cycle: Tensor
    identity: Tensor

    def total(self, cycle_weight: float, identity_weight: float) -> Tensor:
        """L_adv + alpha_1 L_cyc + alpha_2 L_idt (Appendix A.3.1)."""
        return self.adversarial + cycle_weight * self.cycle + identity_weight * self.identity


def winners(losses: Tensor) -> Tensor:
    """The mechanism with the smallest loss for each image: [k, batch] -> [batch] (Eq. 2)."""
    return losses.argmin(dim=0)


def random_assignment(batch: int, k: int) -> Tensor:
    """Images handed out at random, to each mechanism as many as to any other (up to one): [batch]."""
    return (torch.randperm(batch) + torch.randint(k, ())) % k


def shares(winner: Tensor, k: int) -> Tensor:
    """The share of the images that each mechanism won: [batch] -> [k]."""
    return torch.bincount(winner, minlength=k) / len(winner)
