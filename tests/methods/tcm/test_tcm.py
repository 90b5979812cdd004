"""Stage 2 with counterfactuals: what its terms are, and whom they train."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.small_tcm import (
    CLASSES,
    COUNT,
    HEAD_TERMS,
    K,
    every_preset,
    losses,
    random_batch,
    small,
    small_head,
    small_preset,
)
from torch import Tensor
from torch.optim import SGD, Adam

from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.methods.tcm.alignment import AlignmentConfig
from tcm.methods.tcm.tcm import TCM, Preset, TCMConfig, preset_tcm
from tcm.methods.tcm.views import Views, drawn_views
from tcm.nn.losses import agreement
from tcm.nn.schedules import ramp_up
from tcm.training.device import make_fabric
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_folder import Run


def test_the_paper_looks_at_all_k_views_of_the_backbones_features():
    method = small(preset_tcm("paper", small=False), head=small_head())
    assert method.head is not None
    seen: list[Views] = []
    method.head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    losses(method)
    (views,) = seen
    assert views.source.shape == views.target.shape == (1 + K, COUNT, method.backbone.features)


@pytest.mark.parametrize(
    ("preset", "settings", "views"),
    [
        ("default", {"source_views": 1, "target_views": 2}, 2 + 3),
        ("default", {"source_views": 2, "target_views": 0}, 3 + 1),
        ("paper", {}, 2 * (1 + K)),
        ("release", {}, 2 + 2),
    ],
)
def test_all_views_of_a_step_go_through_the_backbone_at_once(preset: Preset, settings: dict[str, Any], views: int):
    method = small_preset(preset, **settings)
    seen: list[int] = []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    losses(method)
    assert seen == [views * COUNT]


def test_views_that_agree_and_are_sure_cost_nothing():
    sure = 50 * torch.eye(5)[:COUNT]
    assert agreement(sure.expand(3, -1, -1), 2.0) < 1e-6
    apart = torch.stack([sure, sure.roll(1, dims=1)])
    assert agreement(apart, 2.0) > 10


def test_the_teacher_of_agreement_gets_no_gradient():
    logits = torch.randn(3, COUNT, 5, requires_grad=True)
    agreement(logits, 1.0).backward()
    mean = logits.softmax(dim=-1).mean(dim=0).detach()
    expected = (logits.softmax(dim=-1) - mean) / (3 * COUNT)  # of a cross-entropy with a constant target
    torch.testing.assert_close(logits.grad, expected.detach())


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, {"classification", "agreement", "alignment"}),
        ({"agreement": 0.0}, {"classification", "alignment"}),
        ({"alignment": AlignmentConfig(weight=0.0)}, {"classification", "agreement"}),
        ({"agreement": 0.0, "alignment": AlignmentConfig(weight=0.0)}, {"classification"}),
        ({"head": small_head()}, {"classification", "agreement", "alignment", *HEAD_TERMS}),
        (
            {
                "plain": 0.0,
                "counterfactual": 0.0,
                "agreement": 0.0,
                "head": small_head(),
                "alignment": AlignmentConfig("domains"),
            },
            {"alignment", *HEAD_TERMS},
        ),
    ],
)
def test_a_term_with_weight_0_does_not_appear(settings: dict[str, Any], names: set[str]):
    assert losses(small(**settings)).keys() == names


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_the_papers_terms_are_the_heads_and_the_alignment(preset: Preset):
    assert losses(small_preset(preset)).keys() == {"alignment", *HEAD_TERMS}


def parts(method: TCM) -> set[str]:
    return {name.split(".")[0] for name, _ in method.named_parameters()}


def test_a_part_that_nothing_trains_is_not_built():
    method = small(alignment=AlignmentConfig(weight=0.0))
    assert method.alignment is None
    assert method.head is None
    assert parts(method) == {"backbone", "bottleneck", "classifier", "inverse"}
    head_alone = {"plain": 0.0, "counterfactual": 0.0, "agreement": 0.0, "head": small_head()}
    assert parts(small(**head_alone)) == {"backbone", "bottleneck", "alignment", "head", "inverse"}
    assert parts(small(features="backbone", **head_alone)) == {"backbone", "alignment", "head", "inverse"}


@pytest.mark.parametrize("features", ["bottleneck", "backbone"])
def test_classification_and_agreement_by_hand(features):
    method = small(
        features=features,
        source_views=None,
        target_views=None,
        plain=0.3,
        counterfactual=0.9,
        agreement=0.7,
        sharpness=1.5,
    ).train()
    found, batch = losses(method, 0.2), random_batch()
    assert batch.counterfactuals is not None
    images = [batch.source, *batch.counterfactuals.source, batch.target, *batch.counterfactuals.target]
    logits = method.classifier(method.features(torch.cat(images))).split(COUNT)
    own, made = logits[0], logits[1 : 1 + K]
    changed = torch.stack([F.cross_entropy(view, batch.labels) for view in made]).mean()
    torch.testing.assert_close(found["classification"], 0.3 * F.cross_entropy(own, batch.labels) + 0.9 * changed)
    expected = 0.7 * ramp_up(0.2) * agreement(torch.stack(logits[1 + K :]), 1.5)
    torch.testing.assert_close(found["agreement"], expected)


def test_without_source_counterfactuals_the_images_alone_are_classified():
    method = small(source_views=0, plain=0.5).train()
    seen: list[Tensor] = []
    method.classifier.register_forward_hook(lambda *args: seen.append(args[2]))
    found = losses(method)["classification"]
    torch.testing.assert_close(found, 0.5 * F.cross_entropy(seen[0][:COUNT], torch.arange(COUNT)))


def test_agreement_is_off_at_the_start():
    found = losses(small(), 0.0)
    assert found["agreement"] == 0
    assert found["classification"] > 0


@pytest.mark.parametrize("preset", ["default", "paper", "release"])
def test_early_alignment_trains_the_discriminators_only(preset: Preset):
    for progress, learns in ((0.0, False), (0.5, True)):
        method = small_preset(preset)
        losses(method, progress)["alignment"].backward()
        assert method.alignment is not None
        assert any(part.grad is not None and part.grad.any() for part in method.alignment.parameters())
        moved = any(part.grad is not None and part.grad.any() for part in method.backbone.parameters())
        assert moved == learns


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_the_weights_of_head_and_alignment_multiply_their_terms(preset: Preset):
    config = preset_tcm(preset, small=True)
    heavier = replace(
        config, head=replace(config.head, weight=3.0), alignment=replace(config.alignment, weight=0.5, dropout=0.0)
    )
    lighter = replace(config, alignment=replace(config.alignment, dropout=0.0))
    once, more = losses(small(lighter)), losses(small(heavier))
    for name in HEAD_TERMS:
        torch.testing.assert_close(more[name], 3 * once[name])
    torch.testing.assert_close(more["alignment"], 0.5 * once["alignment"])


def heard_by_alignment(method: TCM, progress: float) -> tuple[Views, Views, float, Any]:
    """What the alignment is given in a step, and what the head said before."""
    heard: list[Any] = []
    said: list[Any] = [None]
    assert method.alignment is not None
    method.alignment.register_forward_pre_hook(lambda _, args: heard.extend(args))
    if method.head:
        method.head.register_forward_hook(lambda *args: said.append(args[2]))
    losses(method, progress)
    features, logits, factor = heard
    return features, logits, factor, said[-1]


def test_the_alignment_is_given_features_the_classifiers_logits_and_the_factor():
    config = TCMConfig(source_views=None, target_views=None, alignment=AlignmentConfig("predictions"))
    method = small(config, head=small_head())
    features, logits, factor, _ = heard_by_alignment(method, 0.3)
    views = drawn_views(random_batch(), None, None, "one")
    torch.testing.assert_close(features.flat, method.features(views.flat))
    torch.testing.assert_close(logits.flat, method.classifier(features.flat))
    assert factor == ramp_up(0.3)


def test_where_no_classifier_learns_the_alignment_is_given_the_heads_logits():
    _, logits, factor, said = heard_by_alignment(small_preset("release"), 0.3)
    assert logits is said.logits
    assert logits.source.shape == (2, COUNT, CLASSES)
    assert factor == ramp_up(0.3)


@every_preset
def test_a_step_moves_what_it_should_and_nothing_else(preset: Preset):
    method = small_preset(preset).train()
    before = {name: parameter.clone() for name, parameter in method.named_parameters()}
    told = method.update(random_batch(), 0.5, method.build_optimizers())
    still = {name for name, parameter in method.named_parameters() if torch.equal(parameter, before[name])}
    assert still == {name for name in before if name.startswith("inverse.")}
    assert ("head/share" in told) == (preset != "default")
    assert all(value.isfinite() and not value.requires_grad for value in told.values())


@every_preset
def test_the_inverse_mechanisms_get_no_gradient(preset: Preset):
    method = small_preset(preset)
    torch.stack(list(losses(method).values())).sum().backward()
    assert method.inverse is not None
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in method.inverse.parameters())
    assert all(not module.training for module in method.inverse.modules())


@every_preset
def test_every_parameter_is_in_one_optimizer_and_the_vaes_in_adam(preset: Preset):
    method = small_preset(preset)
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
    if preset == "default":
        assert found.keys() == {"sgd"}
        return
    assert of_vae
    assert sorted(found["vae"]) == sorted(of_vae)
    assert type(optimizers["vae"]) is Adam  # AdamW is one too, whose weight decay is another
    (group,) = optimizers["vae"].param_groups
    assert (group["lr"], group["weight_decay"]) == (1e-3, method.recipe.weight_decay)


class OneBatch:
    """The same batch at every step."""

    def batch(self, step: int) -> Batch:
        return random_batch()


@pytest.mark.parametrize(
    ("preset", "term"),
    [
        *(("default", term) for term in ("classification", "agreement", "alignment")),
        *(("paper", term) for term in (*sorted(HEAD_TERMS), "alignment")),
    ],
)
def test_a_term_that_is_not_finite_is_named(preset: Preset, term: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    method, run = small_preset(preset), Run(tmp_path / "run")
    plain = method.losses

    def spoiled(batch: Batch, progress: float) -> dict[str, Tensor]:
        found = plain(batch, progress)
        return found | {term: found[term] * math.nan} if progress == 0.5 else found

    monkeypatch.setattr(method, "losses", spoiled)
    run.start({})
    schedule = Schedule(steps=4, log_every=4, evaluate_every=4, save_every=1)
    with pytest.raises(
        InputError, match=rf"^the loss is not finite at step 3 \({term}\); .*/state.pt holds the last good"
    ):
        training_loop(
            make_fabric("cpu", "fp32"), method, OneBatch(), run, schedule=schedule, seed=0, evaluate=dict, quiet=True
        )
