import pytest
import torch
from torch import Tensor

from tcm.mechanisms.components import COMPONENTS, GRID, MIN_CHANGE, component_shares, components, overlap_weights

SIDE = 32
NOTHING = 1.1e-4  # what components() says of an image that does not change a component: the root of its 1e-8


def changes() -> dict[str, Tensor]:
    """A change of each component alone: [1, 3, side, side]."""
    chequered = (-1.0) ** (torch.arange(SIDE)[:, None] + torch.arange(SIDE))
    coarse = chequered[:GRID, :GRID].repeat_interleave(SIDE // GRID, 0).repeat_interleave(SIDE // GRID, 1)
    tinted = torch.tensor([0.3, 0.0, -0.3]).view(3, 1, 1)
    found = {"level": torch.tensor(0.3), "contrast": 0.3 * coarse, "detail": 0.3 * chequered, "colour": tinted}
    return {name: change.expand(1, 3, SIDE, SIDE) for name, change in found.items()}


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_change_of_one_kind_has_one_component(component: str):
    change = changes()[component]
    (found,) = components(change)
    own = COMPONENTS.index(component)
    assert found[own].item() == pytest.approx(change.square().mean().sqrt().item(), rel=1e-4)
    assert all(share < NOTHING for place, share in enumerate(found) if place != own)


def test_energies_add_up():
    change = torch.randn(5, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(
        components(change).square().sum(dim=1), change.square().mean(dim=(1, 2, 3)), rtol=0, atol=1e-7
    )


def test_components_are_independent():
    parts = changes()
    mixed = components(torch.stack([part[0] for part in parts.values()]).sum(dim=0, keepdim=True))
    alone = torch.stack([components(part)[0, place] for place, part in enumerate(parts.values())])
    torch.testing.assert_close(mixed[0], alone, rtol=1e-4, atol=1e-5)


def test_no_change_has_a_finite_gradient():
    change = torch.zeros(1, 3, SIDE, SIDE, requires_grad=True)
    components(change).sum().backward()
    assert change.grad is not None
    assert change.grad.isfinite().all()


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8])
def test_shares_of_a_component_sum_to_one_and_all_mechanisms_get_as_much(k: int):
    moved = torch.rand(k, 4, generator=torch.Generator().manual_seed(k)) + 0.2
    share = component_shares(moved)
    torch.testing.assert_close(share.sum(dim=0), torch.ones(4))
    torch.testing.assert_close(share.sum(dim=1), torch.full((k,), 4 / k), rtol=0.05, atol=0)
    assert (share >= 0).all()


def test_the_mechanism_that_changes_a_component_more_gets_it():
    two = component_shares(torch.tensor([[0.6, 0.6, 0.4, 0.4], [0.4, 0.4, 0.6, 0.6]]))
    assert (two[0, :2] > 0.8).all()
    assert (two[1, 2:] > 0.8).all()


def test_a_clear_decision_stays_as_it_is():
    order = torch.tensor([2, 0, 3, 1])
    clear = torch.eye(4)[order] + 0.02
    torch.testing.assert_close(component_shares(clear), torch.eye(4)[order], rtol=0, atol=1e-3)
    # One that changes everything most still gets one component: the one where the others come least near.
    greedy = torch.tensor([[0.9, 0.5, 0.5, 0.5], [0.1, 0.4, 0.1, 0.1], [0.1, 0.1, 0.4, 0.1], [0.1, 0.1, 0.1, 0.4]])
    assert component_shares(greedy).argmax(dim=0).tolist() == [0, 1, 2, 3]


def test_with_none_moving_nothing_is_undefined():
    torch.testing.assert_close(component_shares(torch.zeros(3, 4)), torch.full((3, 4), 1 / 3))
    assert overlap_weights(torch.zeros(3, 4), component_shares(torch.zeros(3, 4))).isfinite().all()


def test_a_change_is_free_for_the_owner_and_costs_others_its_share():
    moved = torch.full((4, 4), 0.1)
    weights = overlap_weights(moved, torch.eye(4))
    assert torch.equal(weights.diagonal(), torch.zeros(4))
    others = ~torch.eye(4, dtype=torch.bool)
    torch.testing.assert_close(weights[others], torch.full((12,), 1 / 0.4 / 4))
    # The same weights for every component of other mechanisms: the mean over components of shares of the change.
    torch.testing.assert_close((moved * weights).sum(), torch.tensor(3 / 4))
    tiny = overlap_weights(torch.full((4, 4), 1e-6), torch.eye(4))
    torch.testing.assert_close(tiny[others], torch.full((12,), 1 / MIN_CHANGE / 4))
