import torch
from torch import nn

from tcm.nn.heads import bottleneck, classifier, discriminator, plain_discriminator, reverse_gradient


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


def test_the_plain_discriminator_is_the_papers():
    def layers(network: nn.Sequential) -> list[str]:
        return [str(layer).replace(", bias=True", "") for layer in network]

    first, second = "Linear(in_features=2048, out_features=1024)", "Linear(in_features=1024, out_features=1024)"
    last = "Linear(in_features=1024, out_features=1)"
    paper = plain_discriminator(2048)
    assert layers(paper) == [first, "ReLU()", second, "ReLU()", last]
    assert sum(p.numel() for p in paper.parameters() if p.ndim == 2) == 3_146_752  # the 3.15 M of facts
    dropout = "Dropout(p=0.5, inplace=False)"
    assert layers(plain_discriminator(2048, dropout=0.5)) == [first, "ReLU()", dropout, second, "ReLU()", dropout, last]
