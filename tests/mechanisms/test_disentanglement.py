import numpy as np
import pytest
import torch
from torch import Tensor

from tcm.data import digits as made
from tcm.data.augment import as_input
from tcm.data.task import Task
from tcm.mechanisms.disentanglement import Disentanglement, disentanglement


def rendered(side: made.Side, change: list[int], count: int = 400) -> Tensor:
    """The true counterfactual: the same digits and noise with these factors moved by the whole gap of the domains."""
    other: made.Side = "target" if side == "source" else "source"
    bare, labels, _ = made.shapes(side)
    own, their = made.domain(side), made.domain(other)
    rng = np.random.default_rng([made.DATA_SEED, ("source", "target").index(side), False])
    made.sample_factors(labels, side, rng)  # what `domain` drew before the noise
    noise = rng.normal(size=(*bare.shape, 3))
    factors = own.factors.copy()
    factors[:, change] += (their.factors.mean(axis=0) - own.factors.mean(axis=0))[change]
    return as_input(torch.from_numpy(made.render(bare, factors, noise)[:count]))


def oracle(changes: list[list[int]]):
    def transport(images: Tensor, to) -> Tensor:
        return torch.stack([rendered("source" if to == "target" else "target", change) for change in changes])

    return transport


def test_the_oracle_leaves_the_images_as_they_are_when_it_changes_nothing(digits: Task):
    assert torch.equal(rendered("source", []), as_input(digits.source.images[:400]))


def test_true_single_factor_mechanisms_score_as_such(digits: Task):
    found = disentanglement(oracle([[0], [1], [2], [3]]), digits)
    assert found.leading == list(made.FACTORS)
    assert found.factors_led == 4
    assert found.specialisation > 0.8
    assert np.abs(found.mean_shifts - np.eye(4)).max() < 0.25
    assert found.spill.max() < 0.1


def test_mechanisms_that_change_everything_do_not(digits: Task):
    found = disentanglement(oracle([[0, 1, 2, 3]] * 2), digits)
    assert found.specialisation < 0.35
    assert found.factors_led == 1
    assert found.spill.min() > 0.7


def test_doing_nothing_leads_on_nothing(digits: Task):
    found = disentanglement(oracle([[], []]), digits)
    assert found.factors_led == 0
    assert np.abs(found.mean_shifts).max() < 1e-6
    assert not found.active.any()
    assert found.specialisation == 0


def test_an_unused_mechanism_does_not_count():
    """Its tiny shifts point somewhere, which is no specialisation."""
    used, unused = [0.8, 0.2, 0, 0], [0, 0.09, 0, 0]
    found = Disentanglement({"target": np.array([used, unused]), "source": np.array([used, unused])})
    assert found.active.tolist() == [True, False]
    assert found.specialisation == pytest.approx(0.8)


def test_what_a_mechanism_moves_besides_is_spill_even_if_it_takes_it_back():
    """A factor that is moved too far in one direction and the wrong way in the other does not stay put."""
    there, back = np.array([[1.0, 0.3, 0, 0.1]]), np.array([[1.0, -0.3, 0, 0.1]])
    found = Disentanglement({"target": there, "source": back})
    assert found.spill == pytest.approx([(0.3 + 0 + 0.1) / 3])
