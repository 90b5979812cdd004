import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods import dmrl
from tcm.methods.dmrl import DMRL, DMRLConfig, drawn_share
from tcm.methods.method import Problem, Recipe
from tcm.nn.backbone import BackboneConfig

CLASSES, COUNT = 3, 5
SHARES = [0.7, 0.2, 0.4]  # of a source image in a mixture with a source image, of target images, between domains
both_forms = pytest.mark.parametrize("mixtures", ["between", "within"])


def built(**own: Any) -> DMRL:
    torch.manual_seed(0)
    config = DMRLConfig(Recipe(bottleneck=8), hidden=8, **own)
    method = config.build(Problem(CLASSES, BackboneConfig("small").build()))
    assert isinstance(method, DMRL)
    return method


def random_batch(count: int = COUNT) -> Batch:
    images = torch.rand(2, count, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return Batch(images[0], torch.arange(count) % CLASSES, images[1])


@pytest.fixture
def known_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of `losses` draws the same shares and the same partners."""
    drawn = list(SHARES)

    def next_share(concentration: float) -> float:
        drawn.append(drawn.pop(0))
        return drawn[-1]

    monkeypatch.setattr(dmrl, "drawn_share", next_share)
    partners = torch.tensor([1, 2, 3, 4, 0]), torch.tensor([3, 4, 0, 1, 2])
    turns = [*partners]

    def next_partners(count: int, **_: Any) -> Tensor:
        turns.append(turns.pop(0))
        return turns[-1]

    monkeypatch.setattr(torch, "randperm", next_partners)


def softmax(logits: Tensor) -> Tensor:
    return logits.exp() / logits.exp().sum()


@both_forms
@pytest.mark.usefixtures("known_shares")
def test_the_losses_are_their_definition_image_by_image(mixtures: Any):
    method = built(mixtures=mixtures, trade_off=2.0, category_mixup=3.0, domain_mixup=5.0).eval().double()
    batch = random_batch()
    source, target, labels = batch.source.double(), batch.target.double(), batch.labels.tolist()
    found = method.losses(Batch(source, batch.labels, target), 0.5)

    def logits(image: Tensor) -> Tensor:
        return method.predict(image[None])[0]

    def says_source(image: Tensor) -> Tensor:
        return torch.sigmoid(method.discriminator(method.features(image[None])))[0, 0]

    expected = dict.fromkeys(found, torch.zeros((), dtype=torch.float64))
    a, b, c = SHARES
    for i in range(COUNT):
        j, k = (i + 1) % COUNT, (i + 3) % COUNT
        mixed_source, mixed_target = a * source[i] + (1 - a) * source[j], b * target[i] + (1 - b) * target[k]
        predicted = softmax(logits(mixed_source))
        both = b * logits(target[i]) + (1 - b) * logits(target[k])
        if mixtures == "between":
            says = says_source(c * source[i] + (1 - c) * target[i])
            on_mixtures = -c * says.log() - (1 - c) * (1 - says).log()
        else:
            on_mixtures = -0.5 * (says_source(mixed_source).log() + (1 - says_source(mixed_target)).log())
        terms = {
            "classification": -softmax(logits(source[i]))[labels[i]].log(),
            "domain": -2 * 0.5 * (says_source(source[i]).log() + (1 - says_source(target[i])).log()),
            "source_mixup": -3 * (a * predicted[labels[i]].log() + (1 - a) * predicted[labels[j]].log()),
            "target_mixup": 3 * (softmax(logits(mixed_target)) - softmax(both)).abs().mean(),
            "domain_mixup": 5 * on_mixtures,
        }
        expected = {name: expected[name] + value / COUNT for name, value in terms.items()}
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=name)


@both_forms
@pytest.mark.usefixtures("known_shares")
def test_the_features_climb_what_the_discriminator_descends(mixtures: Any, monkeypatch: pytest.MonkeyPatch):
    method = built(mixtures=mixtures).eval()
    below, above = next(method.bottleneck.parameters()), list(method.discriminator.parameters())

    def gradients(name: str) -> tuple[Tensor, ...]:
        loss = method.losses(random_batch(), 0.05)[name]
        return torch.autograd.grad(loss, [below, *above], allow_unused=True, materialize_grads=True)

    found = {name: gradients(name) for name in ("domain", "domain_mixup")}
    monkeypatch.setattr(dmrl, "reverse_gradient", lambda x, factor: x)
    for name, (climbs, *descends) in found.items():
        plain = gradients(name)
        assert plain[0].any()
        torch.testing.assert_close(climbs, -math.tanh(0.25) * plain[0])
        for ours, its in zip(descends, plain[1:], strict=True):
            torch.testing.assert_close(ours, its)


@both_forms
def test_who_learns_from_what(mixtures: Any):
    method = built(mixtures=mixtures).train()
    losses = method.losses(random_batch(), 0.5)

    def learns(name: str, part: str) -> bool:
        parameters = list(method.get_submodule(part).parameters())
        return any(g is not None for g in torch.autograd.grad(losses[name], parameters, None, True, allow_unused=True))

    for name in losses:
        adversarial = name.startswith("domain")
        assert learns(name, "backbone")
        assert learns(name, "discriminator") == adversarial
        assert learns(name, "classifier") != adversarial


def test_in_the_authors_form_the_discriminator_sees_no_mixture_of_two_domains():
    assert DMRLConfig().mixtures == "between"
    assert DMRLConfig.authors().mixtures == "within"
    for mixtures, kinds, judged in (("between", 5, 3), ("within", 4, 4)):
        method, seen = built(mixtures=mixtures).train(), {}
        method.backbone.register_forward_pre_hook(lambda _, args, seen=seen: seen.update(views=len(args[0])))
        method.discriminator.register_forward_pre_hook(lambda _, args, seen=seen: seen.update(judged=len(args[0])))
        method.losses(random_batch(), 0.5)
        assert seen == {"views": kinds * COUNT, "judged": judged * COUNT}


def test_shares_are_near_zero_and_one_for_a_small_concentration():
    torch.manual_seed(0)
    shares = torch.tensor([[drawn_share(concentration) for _ in range(400)] for concentration in (0.2, 50.0)])
    assert ((shares >= 0) & (shares <= 1)).all()
    torch.testing.assert_close(shares.mean(dim=1), torch.tensor([0.5, 0.5]), rtol=0, atol=0.06)
    small, large = (shares - 0.5).square().mean(dim=1)  # the variance of Beta(a, a) is 1 / (4 (2 a + 1))
    assert (small, large) == (pytest.approx(1 / 5.6, rel=0.1), pytest.approx(1 / 404, rel=0.2))


@both_forms
def test_few_images_and_low_precision_give_finite_losses(mixtures: Any):
    method, batch = built(mixtures=mixtures).train(), random_batch(2)
    for labels in (torch.zeros(2, dtype=torch.long), torch.tensor([0, 2])):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = method.update(batch._replace(labels=labels), 0.5, method.build_optimizers())
        assert all(loss.isfinite() and loss.dtype == torch.float32 for loss in losses.values())
