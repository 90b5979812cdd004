"""GVB-GD against its formula, written out with numpy and by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.gvb import GVB, GVBConfig
from tcm.methods.method import Problem, Recipe
from tcm.nn.backbone import BackboneConfig
from tcm.nn.schedules import ramp_up

CLASSES, COUNT = 4, 5


@pytest.fixture
def method() -> GVB:
    torch.manual_seed(0)
    config = GVBConfig(generator_bridge=0.5, discriminator_bridge=0.25, trade_off=2.0, hidden=8)
    method = config.build(Problem(CLASSES, BackboneConfig("small").build()))
    assert isinstance(method, GVB)
    return method.double().eval()


@pytest.fixture
def batch() -> Batch:
    images = torch.rand(2, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1)).double()
    return Batch(images[0], torch.tensor([0, 3, 3, 1, 0]), images[1])


def outputs(method: GVB, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """y = C(f) - G(f) and G(f) of the source and then of the target, and the two outputs of the discriminator."""
    features = method.backbone(torch.cat([batch.source, batch.target]))
    bridge = method.bridge(features)
    logits = method.classifier(features) - bridge
    return logits, bridge, method.discriminator(logits.softmax(dim=1))


def test_the_losses_are_their_definitions(method: GVB, batch: Batch):
    found = method.losses(batch, 0.5)
    logits, bridge, judged = (part.detach().numpy() for part in outputs(method, batch))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    weights = np.exp((p * np.log(p)).sum(axis=1))
    real = 1 / (1 + np.exp(-(judged[:, 0] - judged[:, 1])))
    source = (weights[:COUNT] * -np.log(real[:COUNT])).sum() / weights[:COUNT].sum()
    target = (weights[COUNT:] * -np.log(1 - real[COUNT:])).sum() / weights[COUNT:].sum()
    expected = {
        "classification": -np.log(p[np.arange(COUNT), batch.labels.numpy()]).mean(),
        "domain": 2.0 * (source + target) / 2,
        "generator_bridge": 0.5 * np.abs(bridge).mean(),
        "discriminator_bridge": 0.25 * np.abs(judged[:, 1]).mean(),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(value, rel=1e-9), name


def test_the_gradient_through_the_certainty_weights_is_reversed_too(method: GVB, batch: Batch):
    """By the product rule: the reversed gradient of the discriminator's errors and that of the weights."""
    below = list(method.classifier.parameters())
    found = torch.autograd.grad(method.losses(batch, 0.3)["domain"], below)
    logits, _, judged = outputs(method, batch)
    p = logits.softmax(dim=1)
    weights = torch.exp((p * p.log()).sum(dim=1))
    labels = torch.tensor([1.0] * COUNT + [0.0] * COUNT).double()
    errors = F.binary_cross_entropy_with_logits(judged[:, 0] - judged[:, 1], labels, reduction="none")
    sums = torch.stack([part.sum().detach() for part in weights.split(COUNT)]).repeat_interleave(COUNT)
    by_errors = torch.autograd.grad((errors * (weights.detach() / sums)).sum(), below, retain_graph=True)
    by_weights = torch.autograd.grad((errors.detach() * weights / sums).sum(), below)
    for ours, first, second in zip(found, by_errors, by_weights, strict=True):
        torch.testing.assert_close(ours, -ramp_up(0.3) * (first + second))
        assert second.abs().max() > 1e-3 * first.abs().max()


def test_the_bridges_shrink_by_descent(method: GVB, batch: Batch):
    """The generator's penalty trains the bridge and the backbone without a reversal, and not the classifier."""
    below = [*method.bridge.parameters(), next(method.backbone.parameters())]
    found = torch.autograd.grad(method.losses(batch, 0.3)["generator_bridge"], below)
    expected = torch.autograd.grad(0.5 * outputs(method, batch)[1].abs().mean(), below)
    for ours, its in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, its)
    untouched = torch.autograd.grad(
        method.losses(batch, 0.3)["generator_bridge"], list(method.classifier.parameters()), allow_unused=True
    )
    assert untouched == (None, None)


def test_the_bridge_is_subtracted_from_predictions(method: GVB, batch: Batch):
    features = method.backbone(batch.target)
    expected = features @ (method.classifier.weight - method.bridge.weight).T + method.classifier.bias  # pyright: ignore[reportOperatorIssue, reportArgumentType]
    torch.testing.assert_close(method.predict(batch.target), expected - method.bridge.bias)


def test_the_authors_settings():
    config = GVBConfig.authors()
    assert config == GVBConfig(separate_passes=True)
    assert config.recipe == Recipe(lr=0.01, pretrained_lr=0.1, weight_decay=1e-3)
    assert (config.authors_steps, config.authors_batch) == (8_004, 36)
