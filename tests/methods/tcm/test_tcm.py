"""The forms of TCM in training: what their terms are, and whom they train."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.small_tcm import (
    COUNT,
    HEAD_TERMS,
    K,
    every_form,
    losses,
    random_batch,
    small,
    small_paper,
    small_tcm,
)
from torch import Tensor
from torch.optim import SGD, Adam

from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.methods.method import Method
from tcm.methods.tcm.paper import PaperConfig
from tcm.methods.tcm.views import all_views
from tcm.nn.losses import agreement
from tcm.nn.schedules import ramp_up
from tcm.training.device import make_fabric
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_folder import Run

DEFAULT_TERMS = {"classification", "agreement", "alignment"}


def discriminators(method: Method) -> list[Tensor]:
    """The parameters of all discriminators."""
    return [parameter for name, parameter in method.named_parameters() if "alignment." in name]


@pytest.mark.parametrize("input", ["backbone", "bottleneck"])
def test_the_head_is_given_x_and_its_proxies_in_their_roles(input: Any):
    method = small_paper(input=input)
    seen: list[tuple[Tensor, ...]] = []
    method.head.register_forward_pre_hook(lambda _, args: seen.append(args))
    losses(method)
    ((x, x_hat, x_hat_of_target, labels),) = seen
    width = method.backbone.features if input == "backbone" else method.recipe.bottleneck
    assert x.shape == (1, COUNT, width)
    assert x_hat.shape == x_hat_of_target.shape == (K, COUNT, width)
    assert torch.equal(labels, random_batch().labels)
    views = all_views(random_batch())
    torch.manual_seed(3)
    # Of the images: in the same batch, so batch normalisation does the same.
    torch.testing.assert_close(x[0], method.train().features(views.flat)[:COUNT])


@pytest.mark.parametrize(
    ("form", "settings", "views"),
    [
        ("tcm", {"source_views": 1, "target_views": 2}, 2 + 3),
        ("tcm", {"source_views": 2, "target_views": 1}, 3 + 2),
        ("tcm-control", {"source_views": 1, "target_views": 2}, 2 + 3),
        ("tcm-paper", {}, 2 * (1 + K)),
    ],
)
def test_all_views_of_a_step_go_through_the_backbone_at_once(form: str, settings: dict[str, Any], views: int):
    method = small(form, **settings)
    seen: list[int] = []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    losses(method)
    assert seen == [views * COUNT]


def test_views_that_agree_and_are_sure_cost_nothing():
    sure = 50 * torch.eye(5)[:COUNT]
    assert agreement(sure.expand(3, -1, -1)) < 1e-6
    apart = torch.stack([sure, sure.roll(1, dims=1)])
    assert agreement(apart) > 10


def test_the_teacher_of_agreement_gets_no_gradient():
    logits = torch.randn(3, COUNT, 5, requires_grad=True)
    agreement(logits).backward()
    mean = logits.softmax(dim=-1).mean(dim=0).detach()
    expected = (logits.softmax(dim=-1) - mean) / (3 * COUNT)  # of a cross-entropy with a constant target
    torch.testing.assert_close(logits.grad, expected.detach())


def test_the_terms_of_each_form():
    assert losses(small("tcm")).keys() == losses(small("tcm-control")).keys() == DEFAULT_TERMS
    assert losses(small("tcm-paper")).keys() == {"alignment", *HEAD_TERMS}


def parts(method: Method) -> set[str]:
    return {name.split(".")[0] for name, _ in method.named_parameters()}


def test_a_part_that_nothing_trains_is_not_built():
    assert parts(small("tcm")) == {"backbone", "bottleneck", "classifier", "alignment", "inverse"}
    assert parts(small("tcm-paper")) == {"backbone", "bottleneck", "alignment", "head", "inverse"}
    assert parts(small("tcm-paper", input="backbone")) == {"backbone", "alignment", "head", "inverse"}
    plain = {f"{side}_{part}" for side in ("source", "target") for part in ("classifier", "alignment")}
    assert parts(small("tcm-release")) == {"backbone", "head", "inverse", *plain}


def test_classification_and_agreement_by_hand():
    method = small_tcm(plain=0.3, counterfactual=0.9, agreement=0.7).train()
    torch.manual_seed(3)
    views = method.views(random_batch())
    found = losses(method, 0.2)
    logits = method.classifier(method.features(views.flat)).split(COUNT)
    own, made, target = logits[0], logits[1:3], torch.stack(logits[3:])
    labels = random_batch().labels
    changed = torch.stack([F.cross_entropy(view, labels) for view in made]).mean()
    torch.testing.assert_close(found["classification"], 0.3 * F.cross_entropy(own, labels) + 0.9 * changed)
    torch.testing.assert_close(found["agreement"], 0.7 * ramp_up(0.2) * agreement(target))


def test_the_control_trains_on_each_image_in_place_of_its_counterfactuals():
    method = small("tcm-control").train()
    seen: list[Tensor] = []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    losses(method)
    batch = random_batch()
    assert torch.equal(seen[0], torch.cat([batch.source] * 3 + [batch.target] * 3))


def test_agreement_is_off_at_the_start():
    found = losses(small("tcm"), 0.0)
    assert found["agreement"] == 0
    assert found["classification"] > 0


@every_form
def test_early_alignment_trains_the_discriminators_only(form: str):
    for progress, learns in ((0.0, False), (0.5, True)):
        method = small(form)
        losses(method, progress)["alignment"].backward()
        assert any(part.grad is not None and part.grad.any() for part in discriminators(method))
        moved = any(part.grad is not None and part.grad.any() for part in method.backbone.parameters())
        assert moved == learns


@pytest.mark.parametrize(
    ("form", "weight", "term"),
    [
        ("tcm", "agreement", "agreement"),
        ("tcm", "alignment", "alignment"),
        ("tcm-paper", "alpha", "alignment"),
        ("tcm-release", "alpha", "alignment"),
    ],
)
def test_a_weight_multiplies_its_term(form: str, weight: str, term: str):
    settings = {"dropout": 0.0} if form == "tcm-release" else {}
    once, less = (losses(small(form, **{weight: value}, **settings)) for value in (1.0, 0.5))
    torch.testing.assert_close(less[term], 0.5 * once[term])
    assert all(torch.equal(less[name], once[name]) for name in once if name != term)


def test_the_default_aligns_features_with_the_classifiers_predictions():
    method = small_tcm()
    heard: list[Any] = []
    method.alignment.register_forward_pre_hook(lambda _, args: heard.extend(args))
    losses(method, 0.3)
    features, logits, factor = heard
    torch.testing.assert_close(logits.flat, method.classifier(features.flat))
    assert factor == ramp_up(0.3)


@every_form
def test_a_step_moves_what_it_should_and_nothing_else(form: str):
    method = small(form).train()
    before = {name: parameter.clone() for name, parameter in method.named_parameters()}
    told = method.update(random_batch(), 0.5, method.build_optimizers())
    still = {name for name, parameter in method.named_parameters() if torch.equal(parameter, before[name])}
    assert still == {name for name in before if name.startswith("inverse.")}
    assert ("head/share" in told) == (form != "tcm")
    assert all(value.isfinite() and not value.requires_grad for value in told.values())


@every_form
def test_the_inverse_mechanisms_get_no_gradient(form: str):
    method = small(form)
    torch.stack(list(losses(method).values())).sum().backward()
    assert method.inverse is not None
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in method.inverse.parameters())
    assert all(not module.training for module in method.inverse.modules())


@every_form
def test_every_parameter_is_in_one_optimizer_and_the_vaes_in_adam(form: str):
    method = small(form)
    optimizers = method.build_optimizers()
    names = {id(parameter): name for name, parameter in method.named_parameters()}
    found = {
        kind: [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
        for kind, optimizer in optimizers.items()
    }
    of_vae = {name for name in names.values() if name.startswith("head.vae.")}
    others = {name for name in names.values() if not name.startswith(("head.vae.", "inverse."))}
    assert sorted(found["sgd"]) == sorted(others)
    assert isinstance(optimizers["sgd"], SGD)
    if form == "tcm":
        assert found.keys() == {"sgd"}
        return
    assert of_vae
    assert sorted(found["vae"]) == sorted(of_vae)
    assert type(optimizers["vae"]) is Adam  # AdamW is one too, whose weight decay is another
    (group,) = optimizers["vae"].param_groups
    assert (group["lr"], group["weight_decay"]) == (1e-3, method.recipe.weight_decay)


def test_on_photographs_the_vae_and_the_discriminators_have_the_papers_sizes():
    assert small_paper().config.head.vae.latent == 32
    assert PaperConfig.for_images(small=False).head.vae.latent == 100


class OneBatch:
    """The same batch at every step."""

    def batch(self, step: int) -> Batch:
        return random_batch()


@pytest.mark.parametrize(
    ("form", "term"),
    [
        *(("tcm", term) for term in sorted(DEFAULT_TERMS)),
        *(("tcm-paper", term) for term in (*sorted(HEAD_TERMS), "alignment")),
    ],
)
def test_a_term_that_is_not_finite_is_named(form: str, term: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    method, run = small(form), Run(tmp_path / "run")
    plain = method.losses

    def spoiled(batch: Batch, progress: float) -> dict[str, Tensor]:
        found = plain(batch, progress)
        return found | {term: found[term] * math.nan} if progress == 0.5 else found

    monkeypatch.setattr(method, "losses", spoiled)
    run.start({})
    schedule = Schedule(steps=4, log_every=4, evaluate_every=4, save_every=1)
    fabric = make_fabric("cpu", "fp32")
    with pytest.raises(InputError, match=rf"not finite at step 3 \({term}\); .*state.pt holds the last good"):
        training_loop(fabric, method, OneBatch(), run, schedule=schedule, seed=0, evaluate=dict, quiet=True)
