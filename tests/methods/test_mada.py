"""MADA against a loop over classes and images."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.mada import MADA, MADAConfig
from tcm.methods.method import Problem, Recipe
from tcm.nn.backbone import BackboneConfig
from tcm.nn.heads import ClassDiscriminators
from tcm.nn.schedules import ramp_up

CLASSES, COUNT = 3, 4


@pytest.fixture
def method() -> MADA:
    torch.manual_seed(0)
    config = MADAConfig(Recipe(bottleneck=6), trade_off=0.7, hidden=5)
    method = config.build(Problem(CLASSES, BackboneConfig("small").build()))
    assert isinstance(method, MADA)
    for weight in method.discriminators.parameters():
        torch.nn.init.normal_(weight)  # larger than the authors', so that differences show
    return method.double().eval()


@pytest.fixture
def batch() -> Batch:
    images = torch.rand(2, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1)).double()
    return Batch(images[0], torch.tensor([0, 2, 2, 0]), images[1])


def one_discriminator(network: ClassDiscriminators, k: int, x: Tensor) -> Tensor:
    """The logit of discriminator k for one image's input."""
    (w1, w2, w3), (b1, b2, b3) = network.weights, network.biases
    hidden = torch.relu(x @ w1[k] + b1[k, 0])
    return (torch.relu(hidden @ w2[k] + b2[k, 0]) @ w3[k] + b3[k, 0])[0]


def looped(method: MADA, features: Tensor, predictions: Tensor) -> Tensor:
    """The sum over classes of the mean binary cross-entropy over all images, source = 1."""
    total = torch.zeros(())
    for k in range(CLASSES):
        for i in range(2 * COUNT):
            probability = torch.sigmoid(one_discriminator(method.discriminators, k, predictions[i, k] * features[i]))
            total = total - torch.log(probability if i < COUNT else 1 - probability) / (2 * COUNT)
    return total


def test_the_losses_are_their_definitions(method: MADA, batch: Batch):
    found = method.losses(batch, 0.5)
    features = method.features(torch.cat([batch.source, batch.target]))
    logits = method.classifier(features)
    torch.testing.assert_close(found["classification"], F.cross_entropy(logits[:COUNT], batch.labels))
    torch.testing.assert_close(found["domain"], 0.7 * looped(method, features, logits.softmax(dim=1)))


def test_the_reversed_gradient_reaches_the_features_but_not_by_way_of_the_predictions(method: MADA, batch: Batch):
    weights = [*method.bottleneck[0].parameters(), *method.classifier.parameters()]
    found = torch.autograd.grad(method.losses(batch, 0.2)["domain"], weights, allow_unused=True)
    features = method.features(torch.cat([batch.source, batch.target]))
    expected = torch.autograd.grad(
        0.7 * looped(method, features, method.classifier(features).softmax(dim=1).detach()), weights[:2]
    )
    assert found[2:] == (None, None)
    for ours, its in zip(found[:2], expected, strict=True):
        torch.testing.assert_close(ours, -ramp_up(0.2) * its)


def test_a_discriminator_does_not_learn_from_images_that_are_surely_of_other_classes(method: MADA, batch: Batch):
    with torch.no_grad():
        dict(method.classifier.named_parameters())["bias"].copy_(torch.tensor([2000.0, 0.0, 0.0]))
    first = method.discriminators.weights[0]
    (gradient,) = torch.autograd.grad(method.losses(batch, 0.5)["domain"], [first])
    assert gradient[0].any()
    assert not gradient[1:].any()


def test_the_discriminators_are_independent_and_start_as_the_authors():
    torch.manual_seed(0)
    network = ClassDiscriminators(31, 64, 32)
    assert [tuple(weight.shape) for weight in network.weights] == [(31, 64, 32), (31, 32, 32), (31, 32, 1)]
    for weight, sd in zip(network.weights, (0.01, 0.01, 0.3), strict=True):
        assert weight.std().item() == pytest.approx(sd, rel=0.1)
    assert not any(bias.any() for bias in network.biases)
    assert not torch.equal(network.weights[0][0], network.weights[0][1])
    x = torch.randn(31, 3, 64)
    changed = x.clone()
    changed[4] += 1
    before, after = network.eval()(x), network(changed)
    assert before.shape == (31, 3, 1)
    assert [k for k in range(31) if not torch.equal(before[k], after[k])] == [4]
    assert not torch.equal(network.train()(x), before)  # dropout


def test_the_authors_settings():
    config = MADAConfig.authors()
    assert (config.authors_steps, config.authors_batch) == (10_000, 64)
    assert config == MADAConfig(Recipe(weight_decay=0.0), decay=3.0)
    built = config.build(Problem(2, BackboneConfig("small").build()))
    assert built.lr_factor(0.5) == pytest.approx((1 + 0.0003 * 5000) ** -0.75)
    assert MADAConfig.for_images(small=False) == MADAConfig()
