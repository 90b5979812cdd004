import math

from tcm.nn.schedules import inverse_decay, ramp_up


def test_ramp_up_runs_from_zero_to_nearly_one():
    assert ramp_up(0) == 0
    assert ramp_up(0.1) == 2 / (1 + math.exp(-1)) - 1
    assert 0.9999 < ramp_up(1) < 1


def test_inverse_decay_is_ganins():
    assert inverse_decay(0) == 1
    assert inverse_decay(1) == 11**-0.75
