"""Does a mechanism change one factor and leave the others? Measured on the digits, where the factors are known."""

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
LEAST = 0.1  # of the gap, in its leading factor: a mechanism that moves less is dead


class Disentanglement(NamedTuple):
    """What k mechanisms do to the four factors, in both directions."""

    shifts: dict[Side, Array]  # by destination: [k, 4] of the domain's gap, 1 = the factor arrives, 0 = it stays put

    @property
    def mean_shifts(self) -> Array:
        """[k, 4]: the mean of both directions."""
        return np.mean(list(self.shifts.values()), axis=0)

    @property
    def leading(self) -> list[str]:
        """The factor that each mechanism moves most, in units of its gap."""
        return [FACTORS[i] for i in np.abs(self.mean_shifts).argmax(axis=1)]

    @property
    def alive(self) -> NDArray[np.bool_]:
        """[k]: whether a mechanism moves some factor by a tenth of the gap or more."""
        return np.abs(self.mean_shifts).max(axis=1) >= LEAST

    @property
    def specialisation(self) -> float:
        """Mean, over the mechanisms that are alive, of the leading factor's part in all that the mechanism moves.

        1/4 if each of them moves all four factors alike, 1 if each moves a single one; 0 if none is alive. A dead
        mechanism's part is that of two tiny numbers, so it does not count.
        """
        size = np.abs(self.mean_shifts)[self.alive]
        return float((size.max(axis=1) / size.sum(axis=1)).mean()) if len(size) else 0.0

    @property
    def spill(self) -> Array:
        """[k]: how far the three factors stray that a mechanism does not lead, in units of their gaps.

        The mean of their absolute shifts in both directions: 0 if they stay put, 1 if they arrive as well.
        """
        size = np.mean([np.abs(shift) for shift in self.shifts.values()], axis=0)
        leading = np.abs(self.mean_shifts).argmax(axis=1)
        others = np.arange(size.shape[1]) != leading[:, None]
        return size[others].reshape(len(size), -1).mean(axis=1)

    @property
    def factors_led(self) -> int:
        """How many different factors are led by a mechanism that moves its own by a quarter of the gap or more."""
        strong = np.abs(self.mean_shifts).max(axis=1) >= 0.25
        return len({name for name, is_strong in zip(self.leading, strong, strict=True) if is_strong})


def disentanglement(transport: Transport, task: Task, images: int = 400) -> Disentanglement:
    """Measures a bank of mechanisms, or anything that transports like one, on the built-in digits."""
    some = {"source": task.source.images[:images], "target": task.target.images[:images]}
    before = {side: estimated_factors(pixels.numpy()) for side, pixels in some.items()}
    gap = before["target"].mean(axis=0) - before["source"].mean(axis=0)
    directions: tuple[tuple[Side, Side, float], ...] = (("source", "target", 1.0), ("target", "source", -1.0))
    shifts: dict[Side, Array] = {}
    for origin, to, sign in directions:
        with torch.inference_mode():
            made = transport(as_input(some[origin]), to)
        after = np.stack([estimated_factors(one) for one in as_stored(made).cpu().numpy()])
        shifts[to] = sign * (after - before[origin]).mean(axis=1) / gap
    return Disentanglement(shifts)
