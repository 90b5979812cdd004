"""Shared by the parts of speed.py: the time of a call, and random batches."""

import time
from collections.abc import Callable

import numpy as np
import torch

from tcm.data.batch import Batch

ROUNDS = 7


def seconds_a_call(
    calls: dict[str, Callable[[int], object]], device: torch.device, repeats: int, rounds: int = ROUNDS
) -> dict[str, float]:
    """Median time of one call of each, measured in turns so that a change of the clock speed affects all equally."""

    def drain() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_number in range(rounds + 1):
        for name, call in calls.items():
            start = drain()
            for step in range(repeats):
                call(round_number * repeats + step)
            times[name].append((drain() - start) / repeats)
    return {name: float(np.median(taken[1:])) for name, taken in times.items()}  # the first round warms up


def random_batch(count: int, side: int, device: torch.device) -> Batch:
    """A batch of noise."""
    images = torch.rand(2, count, 3, side, side, device=device)
    return Batch(images[0], torch.zeros(count, dtype=torch.int64, device=device), images[1])
