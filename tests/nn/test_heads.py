import torch

from tcm.nn.heads import bottleneck, classifier, discriminator, reverse_gradient


def test_reversal_keeps_the_value_and_turns_the_gradient():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = reverse_gradient(x, 0.25)
    assert torch.equal(y, x)
    (y * torch.tensor([3.0, 5.0])).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.tensor([-0.75, -1.25]))


def test_shapes():
    features = torch.randn(4, 10)
    narrow = bottleneck(10, 6)(features)
    assert narrow.shape == (4, 6)
    assert classifier(6, 3)(narrow).shape == (4, 3)
    assert discriminator(6, 8)(narrow).shape == (4, 1)
