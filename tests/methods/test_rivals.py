import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.data.batch import Batch
from tcm.methods import METHODS
from tcm.methods.cdan import CDAN, CDANConfig, CDANEConfig
from tcm.methods.mcd import MCD, MCDConfig
from tcm.methods.mdd import MDD, MDDConfig
from tcm.methods.method import Method, Problem, Recipe
from tcm.nn.backbone import BackboneConfig
from tcm.nn.heads import multilinear_map
from tcm.nn.losses import class_balance, classifier_discrepancy, confident_confusion, domain_confusion

CLASSES, COUNT = 10, 8
RIVALS = ["dan", "cdan", "cdan-e", "mcd", "mdd"]
every_rival = pytest.mark.parametrize("name", RIVALS)
ADVERSARIAL = {"cdan": "domain", "cdan-e": "domain", "mdd": "disparity"}


def built(config: Any) -> Any:
    torch.manual_seed(0)
    return config.build(Problem(CLASSES, BackboneConfig("small").build()))


def narrow(name: str, **own: Any) -> Method:
    """The method with layers of 16, so that a pass takes no time."""
    config: Any = METHODS[name]
    hidden = {} if name in ("dan", "mcd") else {"hidden": 16}
    return built(config(recipe=Recipe(bottleneck=16), **hidden, **own))


def random_batch() -> Batch:
    images = torch.rand(2, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return Batch(images[0], torch.arange(COUNT), images[1])


def without_dropout(method: nn.Module) -> None:
    for module in method.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


@every_rival
def test_every_pass_is_over_both_domains_together(name: str):
    method, batch, seen = narrow(name).train(), random_batch(), []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    method.update(batch, 0.5, method.build_optimizers())
    assert len(seen) == (6 if name == "mcd" else 1)
    assert all(torch.equal(images, torch.cat([batch.source, batch.target])) for images in seen)


@every_rival
def test_losses_are_in_single_precision_under_autocast(name: str):
    method = narrow(name).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = method.losses(random_batch(), 0.5)
    assert {loss.dtype for loss in losses.values()} == {torch.float32}


@pytest.mark.parametrize("name", ["dan", "cdan", "cdan-e", "mdd"])
def test_the_trade_off_is_a_factor(name: str):
    plain, weighted = (narrow(name, trade_off=weight).eval().losses(random_batch(), 0.5) for weight in (1.0, 3.0))
    (classification, term), (same, tripled) = plain.values(), weighted.values()
    assert torch.equal(classification, same)
    torch.testing.assert_close(tripled, 3 * term)


@pytest.mark.parametrize("name", list(ADVERSARIAL))
@pytest.mark.parametrize("progress", [0.0, 0.05, 1.0])
def test_the_features_climb_what_the_adversary_descends(name: str, progress: float, monkeypatch: pytest.MonkeyPatch):
    method = narrow(name).eval()
    adversary = method.get_submodule("rival" if name == "mdd" else "discriminator")
    below, above = next(method.bottleneck.parameters()), list(adversary.parameters())

    def gradients() -> tuple[Tensor, ...]:
        loss = method.losses(random_batch(), progress)[ADVERSARIAL[name]]
        return torch.autograd.grad(loss, [below, *above], allow_unused=True, materialize_grads=True)

    found = gradients()
    monkeypatch.setattr(f"tcm.methods.{name.removesuffix('-e')}.reverse_gradient", lambda x, factor: x)
    plain = gradients()
    factor = (0.1 if name == "mdd" else 1.0) * math.tanh(5 * progress)  # 2 / (1 + exp(-10 p)) - 1
    assert plain[0].any()
    torch.testing.assert_close(found[0], -factor * plain[0])
    for ours, its in zip(found[1:], plain[1:], strict=True):
        torch.testing.assert_close(ours, its)


def test_the_multilinear_map_has_the_features_of_the_first_class_first():
    features, predictions = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.25, 0.75]])
    expected = torch.tensor([[0.25, 0.5, 0.75, 0.75, 1.5, 2.25]])
    assert torch.equal(multilinear_map(features, predictions), expected)


def test_cdan_e_is_cdan_with_its_weighting():
    assert CDANEConfig() == CDANEConfig(weighting="entropy")
    assert CDANConfig().weighting == "equal"
    assert isinstance(built(CDANEConfig(Recipe(bottleneck=4), hidden=4)), CDAN)


@pytest.mark.parametrize("name", ["cdan", "cdan-e"])
def test_the_domain_loss_of_cdan_is_its_definition(name: str):
    method, batch = narrow(name).eval(), random_batch()
    assert isinstance(method, CDAN)
    judged, predicted = [], []
    for images in (batch.source, batch.target):
        f, g = method.features(images), method.predict(images).softmax(dim=1)
        products = [torch.outer(b, a).flatten() for a, b in zip(f, g, strict=True)]
        judged.append(method.discriminator(torch.stack(products)))
        predicted.append(g)
    expected = domain_confusion(*judged) if name == "cdan" else confident_confusion(*judged, *predicted)
    torch.testing.assert_close(method.losses(batch, 0.5)["domain"], expected)


@pytest.mark.parametrize("name", ["cdan", "cdan-e"])
def test_the_domain_loss_does_not_train_the_classifier(name: str):
    method = narrow(name)
    weights = list(method.classifier.parameters())
    found = torch.autograd.grad(method.losses(random_batch(), 0.5)["domain"], weights, allow_unused=True)
    assert all(gradient is None for gradient in found)


def plain_update(method: MCD, batch: Batch) -> None:
    """Steps A, B and C as the paper lists them, by switching off what is not to learn."""
    optimizers, config = method.build_optimizers(), method.config
    parts = {"classifiers": method.classifiers, "backbone": method.backbone}

    def step(learning: list[str], sign: int, classify: bool) -> None:
        for name, part in parts.items():
            part.requires_grad_(name in learning)
        features = method.backbone(torch.cat([batch.source, batch.target]))
        first, second = (classifier(features) for classifier in method.classifiers)
        target = first[COUNT:], second[COUNT:]
        loss = sign * config.trade_off * classifier_discrepancy(*target)
        if classify:
            loss = loss + sum(F.cross_entropy(logits[:COUNT], batch.labels) for logits in (first, second))
            loss = loss + config.balance * (class_balance(target[0]) + class_balance(target[1]))
        method.zero_grad()
        loss.backward()
        for name in learning:
            optimizers[name].step()

    step(["classifiers", "backbone"], sign=0, classify=True)
    step(["classifiers"], sign=-1, classify=True)
    for _ in range(config.repeats):
        step(["backbone"], sign=1, classify=False)


@pytest.mark.parametrize("repeats", [1, 4])
def test_a_step_of_mcd_is_a_plain_version_of_it(repeats: int):
    ours = built(MCDConfig(Recipe(bottleneck=16), trade_off=2.0, balance=0.3, repeats=repeats)).double().train()
    without_dropout(ours)
    plain = copy.deepcopy(ours)
    batch = random_batch()
    batch = batch._replace(source=batch.source.double(), target=batch.target.double())
    ours.update(batch, 0.5, ours.build_optimizers())
    plain_update(plain, batch)
    for (name, found), expected in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12, msg=name)


def test_mcd_predicts_by_the_mean_of_two_different_classifiers():
    method, images = built(MCDConfig(Recipe(bottleneck=16))).eval(), random_batch().target
    first, second = (classifier(method.backbone(images)) for classifier in method.classifiers)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(method.predict(images), (first + second) / 2)


def test_the_optimizers_of_mcd_divide_the_parameters_and_keep_the_rates():
    method = built(MCDConfig(Recipe(bottleneck=16)))
    method.backbone.pretrained = True
    optimizers = method.build_optimizers()
    (new,), (old,) = (optimizers[name].param_groups for name in ("classifiers", "backbone"))
    assert {*map(id, new["params"])} == {*map(id, method.classifiers.parameters())}
    assert {*map(id, old["params"])} == {*map(id, method.backbone.parameters())}
    assert (new["lr"], old["lr"]) == (0.01, pytest.approx(0.001))
    assert new["nesterov"]
    assert old["nesterov"]


def test_mcd_can_have_the_optimizers_of_its_authors():
    recipe = Recipe(lr=1e-3, pretrained_lr=1.0, weight_decay=5e-4, bottleneck=16)
    method = built(MCDConfig(recipe, decay=False, backbone_momentum=0.0))
    method.backbone.pretrained = True
    assert [method.lr_factor(progress) for progress in (0.0, 0.5, 1.0)] == [1.0, 1.0, 1.0]
    optimizers = method.build_optimizers()
    (new,), (old,) = (optimizers[name].param_groups for name in ("classifiers", "backbone"))
    assert (new["lr"], new["momentum"], new["weight_decay"]) == (1e-3, 0.9, 5e-4)
    assert (old["lr"], old["momentum"], old["nesterov"], old["weight_decay"]) == (1e-3, 0.0, False, 5e-4)
    method.update(random_batch(), 0.5, optimizers)
    assert not any(state.get("momentum_buffer") is not None for state in optimizers["backbone"].state.values())


def test_mdd_has_the_widths_and_the_rate_of_its_authors():
    method = built(MDDConfig())
    assert isinstance(method, MDD)
    assert method.recipe == Recipe(lr=0.004, bottleneck=1024)
    assert (method.config.margin, method.config.reversal) == (4.0, 0.1)
    assert [type(layer).__name__ for layer in method.bottleneck] == ["Linear", "BatchNorm1d", "ReLU", "Dropout"]
    assert not torch.equal(next(method.classifier.parameters()), next(method.rival.parameters()))
