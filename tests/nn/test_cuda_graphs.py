import pytest
import torch
from torch import Tensor, nn

from tcm.nn.cuda_graphs import Recorder


def test_switched_off_it_is_a_plain_call():
    recorder, calls = Recorder(), []

    def function(x: Tensor, y: Tensor) -> Tensor:
        calls.append((x, y))
        return x + y

    one, two = torch.ones(2), torch.ones(2)
    for _ in range(3):
        assert torch.equal(recorder("sum", function, one, two), torch.full((2,), 2.0))
    assert len(calls) == 3
    assert all(x is one and y is two for x, y in calls)


@pytest.mark.gpu
def test_a_replay_equals_a_plain_call_for_every_shape():
    recorder = Recorder()
    recorder.on = True
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 1, 3)).cuda()
    calls = []

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(x.shape)
        made = network(x)
        return made, made.mean()

    for round_number in range(5):
        for count in (2, 5):
            x = torch.rand(count, 3, 16, 16, device="cuda")
            with torch.no_grad():
                made, mean = recorder("network", function, x)
                expected = network(x)
            torch.testing.assert_close(made, expected)
            torch.testing.assert_close(mean, expected.mean())
        assert len(calls) == 2 * min(round_number + 1, 2)  # once as usual, once recorded


@pytest.mark.gpu
def test_what_a_recorded_function_changes_in_place_is_changed_at_every_call():
    recorder = Recorder()
    recorder.on = True
    weight = nn.Parameter(torch.ones(4, device="cuda"))
    weight.grad = torch.zeros_like(weight)

    def learn(x: Tensor) -> Tensor:
        loss = (weight * x).sum()
        assert weight.grad is not None
        weight.grad.add_(*torch.autograd.grad(loss, [weight]))
        return loss.detach()

    total = torch.zeros(4, device="cuda")
    for step in range(5):
        x = torch.full((4,), float(step), device="cuda")
        loss = recorder("learn", learn, x)
        total += x
        torch.testing.assert_close(weight.grad, total)
        assert loss.item() == 4 * step
        # Two functions of one shape are two graphs.
        assert recorder("twice", lambda y: 2 * y, x)[0].item() == 2 * step


@pytest.mark.gpu
def test_results_outlive_the_other_graphs_that_share_their_memory():
    recorder = Recorder()
    recorder.on = True

    def early(x: Tensor) -> Tensor:
        return ((x + 1) * 2 - 3).sum()  # its intermediate results are as large as the other's result

    def late(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x + 2

    x = torch.arange(4096.0, device="cuda")
    for _ in range(2):
        recorder("early", early, x)
    for _ in range(3):  # recorded after the other, called before it
        one, two = recorder("late", late, x)
        recorder("early", early, x)
        torch.testing.assert_close(one, x + 1)
        torch.testing.assert_close(two, x + 2)
