"""What MADA, SymNets, GVB-GD and CADA have in common."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods import METHODS
from tcm.methods.method import Method, Problem, Recipe
from tcm.nn.backbone import BackboneConfig

COUNT = 6
RIVALS = ["mada", "symnets", "gvb", "cada"]
SEPARATE = ["symnets", "gvb", "cada"]
# The terms behind a gradient reversal layer, and the network that descends them.
ADVERSARIES = {
    "mada": ("discriminators", ["domain"]),
    "gvb": ("discriminator", ["domain", "discriminator_bridge"]),
    "cada": ("discriminator", ["domain", "domain_variance"]),
}
every_rival = pytest.mark.parametrize("name", RIVALS)


def narrow(name: str, classes: int = 5, **own: Any) -> Method:
    """The method with layers of 16, so that a pass takes no time."""
    torch.manual_seed(0)
    config: Any = METHODS[name]
    hidden = {} if name == "symnets" else {"hidden": 16}
    return config(recipe=Recipe(bottleneck=16), **hidden, **own).build(
        Problem(classes, BackboneConfig("small").build())
    )


def random_batch(labels: Tensor | None = None) -> Batch:
    labels = torch.arange(COUNT) % 5 if labels is None else labels
    images = torch.rand(2, len(labels), 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return Batch(images[0], labels, images[1])


def passes_of(method: Method) -> list[Tensor]:
    """The images of every pass of the backbone in a step, in their order."""
    seen: list[Tensor] = []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    method.train().update(random_batch(), 0.5, method.build_optimizers())
    return seen


@every_rival
def test_one_pass_is_over_both_domains(name: str):
    batch = random_batch()
    (seen,) = passes_of(narrow(name))
    assert torch.equal(seen, torch.cat([batch.source, batch.target]))


@pytest.mark.parametrize("name", SEPARATE)
def test_the_domains_can_pass_on_their_own(name: str):
    batch = random_batch()
    source, target = passes_of(narrow(name, separate_passes=True))
    assert torch.equal(source, batch.source)
    assert torch.equal(target, batch.target)


@pytest.mark.parametrize("name", SEPARATE)
def test_passes_make_no_difference_where_nothing_is_normalised_over_the_batch(name: str):
    batch = random_batch()
    found = []
    for separate in (False, True):
        method = narrow(name, separate_passes=separate).eval()
        torch.manual_seed(3)  # of the noise of CADA
        found.append(method.losses(batch, 0.5))
    for key, together in found[0].items():
        torch.testing.assert_close(found[1][key], together, rtol=1e-4, atol=1e-6)


@every_rival
def test_losses_are_in_single_precision_under_autocast(name: str):
    method = narrow(name).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = method.losses(random_batch(), 0.5)
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    assert all(loss.isfinite() for loss in losses.values())


@every_rival
@pytest.mark.parametrize(
    ("classes", "labels"), [(2, [0, 1]), (2, [1, 1]), (5, [0, 0, 3, 4]), (5, [2, 0, 0, 0])], ids=str
)
@pytest.mark.parametrize("progress", [0.0, 1.0])
def test_small_batches_and_missing_classes_give_finite_steps(
    name: str, classes: int, labels: list[int], progress: float
):
    method = narrow(name, classes).train()
    losses = method.update(random_batch(torch.tensor(labels)), progress, method.build_optimizers())
    assert all(loss.isfinite() for loss in losses.values())
    assert all(value.isfinite().all() for value in method.state_dict().values())


@every_rival
def test_extreme_features_give_finite_losses_and_gradients(name: str):
    method = narrow(name).train()
    with torch.no_grad():
        for parameter in method.backbone.network[-1].parameters():  # pyright: ignore[reportIndexIssue]
            parameter.mul_(1e4)
    losses = method.losses(random_batch(), 1.0)
    torch.stack(list(losses.values())).sum().backward()
    assert all(loss.isfinite() for loss in losses.values())
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in method.parameters())


@pytest.mark.parametrize(("name", "term"), [(name, term) for name, (_, terms) in ADVERSARIES.items() for term in terms])
@pytest.mark.parametrize("progress", [0.0, 0.05, 1.0])
def test_the_backbone_climbs_what_the_adversary_descends(
    name: str, term: str, progress: float, monkeypatch: pytest.MonkeyPatch
):
    method = narrow(name).double().eval()
    above = list(method.get_submodule(ADVERSARIES[name][0]).parameters())
    batch = random_batch()
    batch = batch._replace(source=batch.source.double(), target=batch.target.double())

    def gradients() -> tuple[Tensor, ...]:
        torch.manual_seed(2)
        loss = method.losses(batch, progress)[term]
        below = next(method.backbone.parameters())
        return torch.autograd.grad(loss, [below, *above], allow_unused=True, materialize_grads=True)

    found = gradients()
    monkeypatch.setattr(f"tcm.methods.{name}.reverse_gradient", lambda x, factor: x)
    plain = gradients()
    assert plain[0].any()
    torch.testing.assert_close(found[0], -math.tanh(5 * progress) * plain[0])  # 2 / (1 + exp(-10 p)) - 1
    for ours, its in zip(found[1:], plain[1:], strict=True):
        torch.testing.assert_close(ours, its)
    assert any(gradient.any() for gradient in found[1:])


@every_rival
def test_the_weights_are_factors_of_their_terms(name: str):
    weights = {
        "mada": {"trade_off": ["domain"]},
        "symnets": {"trade_off": ["domain_confusion", "entropy"]},
        "gvb": {
            "trade_off": ["domain"],
            "generator_bridge": ["generator_bridge"],
            "discriminator_bridge": ["discriminator_bridge"],
        },
        "cada": {
            "trade_off": ["domain", "domain_variance"],
            "domain_variance": ["domain_variance"],
            "class_variance": ["class_variance"],
        },
    }[name]

    def losses(**own: Any) -> dict[str, Tensor]:
        method = narrow(name, **own).eval()
        torch.manual_seed(2)
        return method.losses(random_batch(), 0.5)

    plain = losses(**dict.fromkeys(weights, 1.0))
    for weight, terms in weights.items():
        tripled = losses(**{**dict.fromkeys(weights, 1.0), weight: 3.0})
        for key, value in plain.items():
            torch.testing.assert_close(tripled[key], (3 if key in terms else 1) * value)
