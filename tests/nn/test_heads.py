import torch
from torch import nn

from tcm.nn.heads import (
    bottleneck,
    classifier,
    deep_classifier,
    discriminator,
    hidden_classifier,
    plain_discriminator,
    reverse_gradient,
)


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
    assert sum(p.numel() for p in paper.parameters() if p.ndim == 2) == 3_146_752  # 3.15 M
    dropout = "Dropout(p=0.5, inplace=False)"
    assert layers(plain_discriminator(2048, dropout=0.5)) == [first, "ReLU()", dropout, second, "ReLU()", dropout, last]


def test_the_classifiers_of_mdd_and_mcd_are_their_authors():
    def kinds(network: nn.Sequential) -> list[str]:
        return [type(layer).__name__ for layer in network]

    def widths(network: nn.Sequential) -> list[tuple[int, int]]:
        return [(layer.in_features, layer.out_features) for layer in network if isinstance(layer, nn.Linear)]

    of_mdd, of_mcd = hidden_classifier(2048, 1024, 65), deep_classifier(2048, 1000, 65)
    assert kinds(of_mdd) == ["Linear", "ReLU", "Dropout", "Linear"]
    assert widths(of_mdd) == [(2048, 1024), (1024, 65)]
    assert kinds(of_mcd) == [*["Dropout", "Linear", "BatchNorm1d", "ReLU"] * 2, "Linear"]
    assert widths(of_mcd) == [(2048, 1000), (1000, 1000), (1000, 65)]
    assert {layer.p for network in (of_mdd, of_mcd) for layer in network if isinstance(layer, nn.Dropout)} == {0.5}
