"""Schedules: pure functions of progress in [0, 1]. Nothing here counts its own calls."""

import math


def ramp_up(progress: float, sharpness: float = 10.0) -> float:
    """From 0 to 1 along 2 / (1 + exp(-sharpness p)) - 1: the gradient reversal factor of Ganin et al. (2016)."""
    return 2.0 / (1.0 + math.exp(-sharpness * progress)) - 1.0


def inverse_decay(progress: float, rate: float = 10.0, power: float = 0.75) -> float:
    """(1 + rate p)^-power: the learning rate factor of Ganin et al. (2016) and of most methods since."""
    return (1.0 + rate * progress) ** -power
