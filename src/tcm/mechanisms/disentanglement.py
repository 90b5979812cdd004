"""Measures whether each mechanism changes one factor only, on the digits, whose factors are known."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tcm.data.augment import as_input, as_stored
from tcm.data.digits import FACTORS
from tcm.data.factors import estimated_factors
from tcm.data.task import Task
from tcm.mechanisms.pair import Side

Array = NDArray[np.float64]
Transport = Callable[[Tensor, Side], Tensor]  # images [n, 3, h, w] in [0, 1] -> counterfactuals [k, n, 3, h, w]
MIN_SHIFT = 0.1  # share of the gap between the domains; a mechanism that moves every factor less is unused


class Disentanglement(NamedTuple):
    """How far k mechanisms move the four factors, in both directions."""

    shifts: dict[Side, Array]  # by destination, [k, 4]: 0 = the factor is unchanged, 1 = moved by the whole domain gap

    @property
    def mean_shifts(self) -> Array:
        """Mean of both directions: [k, 4]."""
        return np.mean(list(self.shifts.values()), axis=0)

    @property
    def leading(self) -> list[str]:
        """The factor that each mechanism moves most, relative to the gap between the domains."""
        return [FACTORS[i] for i in np.abs(self.mean_shifts).argmax(axis=1)]

    @property
    def active(self) -> NDArray[np.bool_]:
        """Whether a mechanism moves any factor by a tenth of the gap or more: [k]."""
        return np.abs(self.mean_shifts).max(axis=1) >= MIN_SHIFT

    @property
    def specialisation(self) -> float:
        """The share of the leading factor in all that a mechanism moves, as the mean over active mechanisms.

        1/4 if each of them moves all four factors equally, 1 if each moves a single one, 0 if none is active. Unused
        mechanisms do not count: their shares are ratios of tiny numbers.
        """
        size = np.abs(self.mean_shifts)[self.active]
        return float((size.max(axis=1) / size.sum(axis=1)).mean()) if len(size) else 0.0

    @property
    def spill(self) -> Array:
        """How far each mechanism moves the three factors that it does not lead, relative to the gaps: [k].

        The mean of the absolute shifts in both directions: 0 if these factors are unchanged, 1 if they move as well.
        """
        size = np.mean([np.abs(shift) for shift in self.shifts.values()], axis=0)
        leading = np.abs(self.mean_shifts).argmax(axis=1)
        others = np.arange(size.shape[1]) != leading[:, None]
        return size[others].reshape(len(size), -1).mean(axis=1)

    @property
    def factors_led(self) -> int:
        """The number of factors that are the leading factor of a mechanism and move by a quarter of the gap or more."""
        strong = np.abs(self.mean_shifts).max(axis=1) >= 0.25
        return len({name for name, is_strong in zip(self.leading, strong, strict=True) if is_strong})


def disentanglement(transport: Transport, task: Task, images: int = 400) -> Disentanglement:
    """Measures `transport` on the built-in digits."""
    some = {"source": task.source.images[:images], "target": task.target.images[:images]}
    before = {side: estimated_factors(pixels.numpy()) for side, pixels in some.items()}
    gap = before["target"].mean(axis=0) - before["source"].mean(axis=0)
    directions: tuple[tuple[Side, Side, float], ...] = (("source", "target", 1.0), ("target", "source", -1.0))
    shifts: dict[Side, Array] = {}
    for origin, to, sign in directions:
        with torch.inference_mode():
            transported = transport(as_input(some[origin]), to)
        after = np.stack([estimated_factors(one) for one in as_stored(transported).cpu().numpy()])
        shifts[to] = sign * (after - before[origin]).mean(axis=1) / gap
    return Disentanglement(shifts)
