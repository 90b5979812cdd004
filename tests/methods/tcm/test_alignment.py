import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from tcm.methods.tcm.alignment import PredictionAlignment, ProxyAlignment
from tcm.methods.tcm.views import Views
from tcm.nn.losses import certain_confusion, confident_confusion, domain_confusion, entropy, proxy_loss

FEATURES, CLASSES, COUNT = 6, 3, 5
Alignment = ProxyAlignment | PredictionAlignment
every_kind = pytest.mark.parametrize("kind", ["proxies", "predictions"])


def built(kind) -> Alignment:
    torch.manual_seed(0)
    return ProxyAlignment(FEATURES, hidden=8) if kind == "proxies" else PredictionAlignment(CLASSES, hidden=8)


def loss_of(alignment: Alignment, features: Views, logits: Views, factor: float) -> Tensor:
    """The loss from all that any of them looks at."""
    if isinstance(alignment, ProxyAlignment):
        return alignment(features, factor)
    return alignment(logits.source[1:], logits.target[0], factor)


def random_views(width: int, seed: int) -> Views:
    """Two counterfactuals of a source image and three of a target image."""
    generator = torch.Generator().manual_seed(seed)
    return Views(*(torch.randn(views, COUNT, width, generator=generator).requires_grad_() for views in (3, 4)))


def inputs() -> tuple[Views, Views]:
    return random_views(FEATURES, 1), random_views(CLASSES, 2)


def by_hand(alignment: Alignment, features: Views, logits: Views) -> Tensor:
    """What each kind is by its definition, without a reversal."""
    if isinstance(alignment, ProxyAlignment):
        d_s, d_t = alignment.source, alignment.target
        on_transported_source = torch.stack([d_t(view) for view in features.source[1:]])
        on_transported_target = torch.stack([d_s(view) for view in features.target[1:]])
        return proxy_loss(
            d_s(features.source[0]), on_transported_source, d_t(features.target[0]), on_transported_target
        )
    assert isinstance(alignment, PredictionAlignment)
    losses = []
    for truth, shown in ((1.0, torch.cat([logits.source[1], logits.source[2]])), (0.0, logits.target[0])):
        classes = shown.softmax(dim=1)
        probability = alignment.discriminator(classes).sigmoid()[:, 0]
        each = -(truth * probability.log() + (1 - truth) * (1 - probability).log())
        weight = torch.exp((classes * classes.log()).sum(dim=1))
        losses.append((weight * each).sum() / weight.sum().item())
    return (losses[0] + losses[1]) / 2


def gradients(loss: Tensor, of: Sequence[Tensor]) -> list[Tensor]:
    """Zeros where the loss does not depend on one."""
    return list(torch.autograd.grad(loss, of, allow_unused=True, materialize_grads=True))


@every_kind
def test_the_loss_is_its_definition(kind):
    alignment, (features, logits) = built(kind), inputs()
    torch.testing.assert_close(loss_of(alignment, features, logits, 0.7), by_hand(alignment, features, logits))


@every_kind
@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0])
def test_the_features_get_the_gradient_turned_and_times_the_factor(kind, factor: float):
    alignment, (features, logits) = built(kind), inputs()
    at = [*features, *logits]
    found, plain = (
        gradients(loss, at)
        for loss in (loss_of(alignment, features, logits, factor), by_hand(alignment, features, logits))
    )
    assert any(part.any() for part in plain)
    for ours, its in zip(found, plain, strict=True):
        torch.testing.assert_close(ours, -factor * its)


@every_kind
@pytest.mark.parametrize("factor", [0.0, 0.3])
def test_the_discriminators_own_gradient_is_neither_turned_nor_scaled(kind, factor: float):
    alignment, (features, logits) = built(kind), inputs()
    weights = list(alignment.parameters())
    found, plain = (
        gradients(loss, weights)
        for loss in (loss_of(alignment, features, logits, factor), by_hand(alignment, features, logits))
    )
    assert all(part.any() for part, weight in zip(plain, weights, strict=True) if weight.ndim == 2)
    for ours, its in zip(found, plain, strict=True):
        torch.testing.assert_close(ours, its)


@pytest.mark.parametrize(
    ("side", "real", "transported"), [("source", "source", "target"), ("target", "target", "source")]
)
def test_each_discriminator_sees_its_domain_and_what_was_carried_there(side: str, real: str, transported: str):
    alignment, (features, logits) = built("proxies"), inputs()
    seen: list[Tensor] = []
    discriminator: nn.Module = getattr(alignment, side)
    discriminator.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    loss_of(alignment, features, logits, 1.0)
    of_domain, carried = seen
    assert torch.equal(of_domain, getattr(features, real)[0])
    assert torch.equal(carried, getattr(features, transported)[1:])


def test_the_two_discriminators_are_two():
    alignment = built("proxies")
    assert isinstance(alignment, ProxyAlignment)
    first, second = (next(network.parameters()) for network in (alignment.source, alignment.target))
    assert not torch.equal(first, second)


def test_predictions_are_aligned_in_one_direction():
    alignment, (features, logits) = built("predictions"), inputs()
    source, target = gradients(loss_of(alignment, features, logits, 1.0), [*logits])
    assert not source[0].any()
    assert not target[1:].any()
    assert source[1:].abs().sum(dim=-1).all()
    assert target[0].abs().sum(dim=-1).all()
    assert torch.autograd.grad(loss_of(alignment, features, logits, 1.0), [*features], allow_unused=True) == (
        None,
        None,
    )


@torch.no_grad()
def without_opinion(alignment: Alignment) -> PredictionAlignment:
    """The alignment with a discriminator that takes every image for one of either domain alike."""
    assert isinstance(alignment, PredictionAlignment)
    for parameter in alignment.parameters():
        parameter.zero_()
    return alignment


def test_the_gradient_through_the_entropy_is_reversed_so_that_both_predictions_become_certain():
    alignment = without_opinion(built("predictions"))
    transported, real = (view.detach().requires_grad_() for view in random_views(CLASSES, 2).source[:2])
    alignment(transported, real, 0.7).backward()
    for logits in (transported, real):
        classes = logits.softmax(dim=1)
        weight = torch.exp(-entropy(classes)).detach()
        # The discriminator's loss is log 2 for each, so the loss is 1/2 log 2 sum of exp(-H) / constant.
        of_entropy = 0.7 * 0.5 * math.log(2) * weight / weight.sum()
        (expected,) = torch.autograd.grad(entropy(classes), logits, of_entropy)
        assert logits.grad is not None
        torch.testing.assert_close(logits.grad, expected)
        less = entropy((logits - 0.1 * logits.grad).softmax(dim=1))  # a step downhill
        assert less.mean() < entropy(classes).mean()


def test_the_sum_that_divides_the_weights_has_no_gradient():
    # Where every image has the same loss, a sum with a gradient would cancel that of the weights.
    entropies = torch.tensor([0.1, 0.5, 1.0]).requires_grad_()
    logits = torch.zeros(3, 1)
    (found,) = torch.autograd.grad(certain_confusion(logits, logits, entropies, entropies.detach()), entropies)
    weight = torch.exp(-entropies.detach())
    torch.testing.assert_close(found, -0.5 * math.log(2) * weight / weight.sum())


def test_certain_predictions_count_more_by_hand():
    # Entropies 0 and log 2 give weights 1 and 1/2.
    entropies, alike = torch.tensor([0.0, math.log(2)]), torch.full((2,), math.log(2))
    source, target = torch.tensor([[0.3], [-1.2]]), torch.tensor([[2.0], [0.1]])
    s1, s2 = math.log(1 + math.exp(-0.3)), math.log(1 + math.exp(1.2))
    t1, t2 = math.log(1 + math.exp(2.0)), math.log(1 + math.exp(0.1))
    found = certain_confusion(source, target, entropies, alike)
    assert found.item() == pytest.approx(0.5 * ((s1 + 0.5 * s2) / 1.5 + (t1 + t2) / 2))


def test_the_entropy_of_a_prediction():
    classes = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]])
    expected = torch.tensor([0.0, math.log(2), -0.25 * math.log(0.25) - 0.75 * math.log(0.75)])
    torch.testing.assert_close(entropy(classes), expected)


def test_predictions_are_aligned_in_single_precision_whatever_is_around():
    alignment, (features, logits) = built("predictions"), inputs()
    expected = loss_of(alignment, features, logits, 1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loss_of(alignment, features, logits, 1.0), expected)
        halves = Views(*(part.bfloat16() for part in logits))
        assert loss_of(alignment, features, halves, 1.0).dtype == torch.float32


def test_sure_predictions_count_more_by_hand():
    # Entropies 0 and log 2 give weights 2 and 1.5; where both are log 2 they count alike.
    mixed, unsure = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.full((2, 2), 0.5)
    source, target = torch.tensor([[0.3], [-1.2]]), torch.tensor([[2.0], [0.1]])
    s1, s2 = math.log(1 + math.exp(-0.3)), math.log(1 + math.exp(1.2))
    t1, t2 = math.log(1 + math.exp(2.0)), math.log(1 + math.exp(0.1))
    found = confident_confusion(source, target, mixed, unsure)
    assert found.item() == pytest.approx(0.5 * ((2 * s1 + 1.5 * s2) / 3.5 + (t1 + t2) / 2))
    found = confident_confusion(source, target, unsure, mixed)
    assert found.item() == pytest.approx(0.5 * ((s1 + s2) / 2 + (2 * t1 + 1.5 * t2) / 3.5))


def test_each_domain_counts_half_however_many_and_however_sure_its_predictions():
    torch.manual_seed(0)
    sure, unsure = (10 * torch.randn(40, CLASSES)).softmax(dim=1), torch.full((3, CLASSES), 1 / CLASSES)
    of_source, of_target = math.log(1 + math.exp(-1.0)), math.log(1 + math.exp(-2.0))
    found = confident_confusion(torch.full((40, 1), 1.0), torch.full((3, 1), -2.0), sure, unsure)
    assert found.item() == pytest.approx(0.5 * (of_source + of_target))


def test_where_all_are_equally_sure_it_is_the_plain_domain_loss():
    torch.manual_seed(0)
    source, target = torch.randn(6, 1), torch.randn(4, 1)
    alike = torch.tensor([0.7, 0.2, 0.1])
    found = confident_confusion(source, target, alike.expand(6, 3), alike.expand(4, 3))
    torch.testing.assert_close(found, domain_confusion(source, target))


def test_the_weights_are_constant():
    torch.manual_seed(0)
    classes = torch.randn(COUNT, CLASSES).softmax(dim=1).requires_grad_()
    logits = torch.randn(COUNT, 1, requires_grad=True)
    loss = confident_confusion(logits, logits, classes, classes)
    assert torch.autograd.grad(loss, [classes], allow_unused=True) == (None,)


def test_a_prediction_without_doubt_has_a_finite_gradient():
    alignment, (features, _) = built("predictions"), inputs()
    sure = Views(*(1e4 * torch.eye(CLASSES)[:1].expand(views, 1, CLASSES) for views in (3, 4)))
    sure = Views(*(part.clone().requires_grad_() for part in sure))
    loss = loss_of(alignment, features, sure, 1.0)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(loss, [*sure]))


def number_of_weights(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters() if parameter.ndim == 2)


def test_parameter_counts_are_the_papers():
    predictions = PredictionAlignment(65, 1024)
    assert number_of_weights(predictions) == 65 * 1024 + 1024 * 1024 + 1024
    assert number_of_weights(predictions) == pytest.approx(1.117e6, rel=1e-3)  # the paper's 1.1 M of the Baseline
    proxies = ProxyAlignment(2048, 1024)
    assert number_of_weights(proxies) == 2 * 3_146_752
    assert sum(parameter.numel() for parameter in proxies.parameters()) == 2 * (3_146_752 + 2 * 1024 + 1)


def layers(network: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    return [layer for layer in network.modules() if isinstance(layer, kind)]


@pytest.mark.parametrize(("kind", "discriminators"), [(ProxyAlignment, 2), (PredictionAlignment, 1)])
def test_dropout_is_the_releases_and_the_paper_has_none(kind, discriminators: int):
    assert not layers(kind(8, 3), nn.Dropout)
    found = layers(kind(8, 3, dropout=0.5), nn.Dropout)
    assert [str(layer) for layer in found] == ["Dropout(p=0.5, inplace=False)"] * 2 * discriminators


@pytest.mark.parametrize(
    ("alignment", "width"),
    [
        (ProxyAlignment(6, hidden=8), 6),
        (PredictionAlignment(3, hidden=8), 3),
    ],
    ids=["proxies", "predictions"],
)
def test_what_a_discriminator_is_given_and_how_wide_it_is(alignment: nn.Module, width: int):
    shapes = [tuple(parameter.shape) for parameter in alignment.parameters() if parameter.ndim == 2]
    assert shapes[:3] == [(8, width), (8, 8), (1, 8)]
    assert not layers(alignment, nn.BatchNorm1d)
