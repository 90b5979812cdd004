import torch

from tcm.mechanisms.competition import Terms, random_assignment, winners


def test_the_smallest_loss_wins():
    assert winners(torch.tensor([[1.0, 5.0, 2.0], [3.0, 4.0, 1.0]])).tolist() == [0, 1, 1]


def test_the_total_is_the_weighted_sum():
    terms = Terms(torch.tensor([1.0]), torch.tensor([0.1]), torch.tensor([0.2]))
    assert terms.total(10, 5).item() == 3.0


def test_random_assignment_is_even_and_random():
    assigned_twice = [random_assignment(10, 4) for _ in range(2)]
    for chosen in assigned_twice:
        assert sorted(torch.bincount(chosen, minlength=4).tolist()) == [2, 2, 3, 3]
    assert not torch.equal(*assigned_twice)
