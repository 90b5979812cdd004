"""CADA: what its losses are, what its attention does, and what has a gradient."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.cada import CADA, CADAConfig
from tcm.methods.method import Problem, Recipe
from tcm.nn.backbone import BackboneConfig
from tcm.nn.uncertainty import bayesian_cross_entropy

CLASSES, COUNT = 4, 5
both_forms = pytest.mark.parametrize("uncertainty", ["predictive", "aleatoric"])


def built(**own: Any) -> CADA:
    """With little noise of its own: no dropout, so that a second pass gives the same."""
    torch.manual_seed(0)
    config = CADAConfig(Recipe(bottleneck=6), hidden=8, draws=3, passes=2, **own)
    method = config.build(Problem(CLASSES, BackboneConfig("small").build()))
    assert isinstance(method, CADA)
    with torch.no_grad():
        method.discriminator.variance.bias.fill_(-3.0)  # the discriminator is certain, so that there is attention
        method.discriminator.logits.weight.mul_(20.0)
    return method.double().eval()


@pytest.fixture
def batch() -> Batch:
    images = torch.rand(2, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1)).double()
    return Batch(images[0], torch.tensor([0, 3, 3, 1, 0]), images[1])


def by_hand(method: CADA, features: Tensor) -> Tensor:
    """The attention by finite differences of the uncertainty, one feature at a time."""

    def uncertainty(f: Tensor) -> float:
        logits, variance = method.discriminator(f[None])
        if method.config.uncertainty == "aleatoric":
            return variance.item()
        p = logits.softmax(dim=1)[0]  # without dropout all passes are the same
        return -(p * p.clamp_min(1e-6).log()).sum().item() + variance.item()

    rows = []
    for f in features:
        u, step = uncertainty(f), 1e-6
        share = []
        for j in range(len(f)):
            moved = step * torch.eye(len(f), dtype=f.dtype)[j]
            slope = (uncertainty(f + moved) - uncertainty(f - moved)) / (2 * step)
            share.append(f[j].item() * -u * slope)
        helpful = [value > 0 for value in share]
        chosen = helpful if any(helpful) else [True] * len(f)
        exponents = torch.tensor(share).exp() * torch.tensor(chosen) if any(helpful) else torch.ones(len(f))
        rows.append(exponents / exponents.sum() * max(0.0, 1 - u))
    return torch.stack(rows).double()


@both_forms
def test_the_attention_is_what_finite_differences_give(uncertainty: str, batch: Batch):
    method = built(uncertainty=uncertainty)
    features = method.features(batch.source).detach()
    found = method.attention(features)
    assert found.max() > 0.05
    torch.testing.assert_close(found, by_hand(method, features), rtol=1e-4, atol=1e-6)


@both_forms
def test_the_losses_are_their_definitions(uncertainty: str, batch: Batch):
    method = built(uncertainty=uncertainty, trade_off=0.5, domain_variance=0.3, class_variance=0.4, smoothing=0.2)
    torch.manual_seed(3)
    found = method.losses(batch, 0.5)
    source, target = method.features(batch.source), method.features(batch.target)
    logits, variance = method.bayesian_classifier(source + source * by_hand(method, source.detach()))
    soft = 0.8 * F.one_hot(batch.labels, CLASSES).double() + 0.2 / CLASSES
    classification = -(soft * logits.log_softmax(dim=1)).sum(dim=1).mean()
    plain, bayesian = [], []
    torch.manual_seed(3)  # the noise is drawn in the order: source domain, target domain, classes
    for label, features in ((0, source), (1, target)):
        domain, its_variance = method.discriminator(features)
        labels = torch.full((COUNT,), label)
        plain.append(F.cross_entropy(domain, labels))
        bayesian.append(bayesian_cross_entropy(domain, labels, its_variance, 3))
    of_classes = bayesian_cross_entropy(logits, batch.labels, variance, 3)
    expected = {
        "classification": classification,
        "class_variance": 0.4 * of_classes,
        "domain": 0.5 * (plain[0] + plain[1]) / 2,
        "domain_variance": 0.5 * 0.3 * (bayesian[0] + bayesian[1]) / 2,
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-8, msg=name)


@both_forms
def test_the_classification_loss_sees_the_attention_as_a_constant(uncertainty: str, batch: Batch):
    method = built(uncertainty=uncertainty)
    found = method.losses(batch, 0.5)["classification"]
    weights = [*method.bottleneck[0].parameters(), *method.discriminator.parameters()]
    gradients = torch.autograd.grad(found, weights, allow_unused=True)
    assert all(gradient is None for gradient in gradients[2:])
    features = method.features(batch.source)
    logits, _ = method.bayesian_classifier(features * (1 + method.attention(features)))
    plain = F.cross_entropy(logits, batch.labels, label_smoothing=0.1)
    for ours, its in zip(gradients[:2], torch.autograd.grad(plain, weights[:2]), strict=True):
        torch.testing.assert_close(ours, its)


def test_target_images_reach_the_domain_losses_only(batch: Batch):
    method = built()
    other = batch._replace(target=batch.target.flip(0) * 0.5)
    found = []
    for images in (batch, other):
        torch.manual_seed(3)
        found.append(method.losses(images, 0.5))
    changed = [name for name in found[0] if not torch.allclose(found[0][name], found[1][name])]
    assert changed == ["domain", "domain_variance"]


def test_predictions_have_neither_attention_nor_dropout(batch: Batch):
    method = built()
    expected, _ = method.bayesian_classifier(method.features(batch.target))
    torch.testing.assert_close(method.predict(batch.target), expected)
    assert torch.equal(method.predict(batch.target), method.predict(batch.target))


def test_the_attention_uses_dropout_in_training(batch: Batch):
    method = built().train()
    features = method.features(batch.source).detach()
    assert not torch.equal(method.attention(features), method.attention(features))


def test_the_authors_settings():
    """In the terms of their code: rates 2e-4 and 2e-3, the classification loss a sum over 20 images."""
    config = CADAConfig.authors()
    recipe, batch = config.recipe, config.authors_batch
    assert (config.uncertainty, batch, config.separate_passes) == ("predictive", 20, True)
    assert (recipe.lr / batch, recipe.lr * recipe.pretrained_lr / batch) == pytest.approx((2e-3, 2e-4))
    assert (recipe.momentum, recipe.weight_decay * batch) == (0.0, pytest.approx(1e-3))
    # Their domain loss is the sum of both domains, each with weight 1: here it is the mean.
    assert config.trade_off * batch / 2 == pytest.approx(1.0)
    assert config.class_variance * batch == pytest.approx(0.2)
    assert config.domain_variance == 0.2
