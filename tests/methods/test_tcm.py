"""Stage 2 with counterfactuals: what the terms are, what the presets set, and what a prediction is made of."""

import math
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import SGD, Adam

from tcm.errors import InputError
from tcm.evaluate import judged
from tcm.learner import Batch, Counterfactuals
from tcm.losses import agreement
from tcm.methods.alignment import AlignmentConfig
from tcm.methods.causal import HeadConfig
from tcm.methods.method import Problem, Recipe
from tcm.methods.tcm import PRESETS, TCM, Preset, TCMConfig, averaged, preset_tcm
from tcm.methods.views import Views, drawn_views
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig
from tcm.nn.vae import VAEConfig
from tcm.run import Run
from tcm.schedules import ramp_up
from tcm.settings import make_fabric
from tcm.train import Rhythm, fit

K, COUNT, CLASSES = 3, 4, 5
HEAD_TERMS = {"label", "adjusted", "proxy", "vae"}
every_preset = pytest.mark.parametrize("preset", ["default", "paper", "release"])


@torch.no_grad()
def small(config: TCMConfig | None = None, **settings) -> TCM:
    """A method with weights so large that different images are said to be different."""
    torch.manual_seed(0)
    inverse = FrozenGenerators(GeneratorConfig(4, 1, 1, kernel=3).build() for _ in range(K))
    problem = Problem(CLASSES, BackboneConfig("small").build(), inverse)
    method = replace(config or TCMConfig(), **settings).build(problem)
    for name, parameter in method.named_parameters():
        if name.startswith(("inverse.", "bottleneck.", "classifier.")) and parameter.ndim > 1:
            parameter.mul_(10)
    return method


def small_preset(preset: Preset, **settings) -> TCM:
    return small(preset_tcm(preset, small=True), **settings)


def small_head(**settings) -> HeadConfig:
    return HeadConfig(weight=1.0, vae=VAEConfig(latent=4, encoder=(16,), decoder=(16,)), **settings)


def random_batch() -> Batch:
    images = torch.rand(2 * K + 2, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    made = Counterfactuals(images[2 : 2 + K], images[2 + K :])
    return Batch(images[0], torch.arange(COUNT), images[1], made)


def losses(method: TCM, progress: float = 0.5) -> dict[str, Tensor]:
    torch.manual_seed(3)
    return method.train().losses(random_batch(), progress)


def without_mechanisms(method: TCM) -> TCM:
    """The method, which from now on fails where it asks its inverse mechanisms."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the inverse mechanisms are asked")

    assert method.inverse is not None
    method.inverse.register_forward_pre_hook(refuse)
    return method


def differences(one: Any, other: Any, prefix: str = "") -> dict[str, Any]:
    """The fields of `one`, nested ones by their path, that `other` has otherwise."""
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(one)):
        ours, theirs = getattr(one, name), getattr(other, name)
        if is_dataclass(ours):
            found |= differences(ours, theirs, f"{prefix}{name}.")
        elif ours != theirs:
            found[prefix + name] = ours
    return found


def test_the_default_preset_is_the_default():
    assert preset_tcm("default", small=False) == preset_tcm("default", small=True) == TCMConfig()


def test_the_paper_is_its_causal_head_and_proxy_loss_on_backbone_features():
    assert differences(preset_tcm("paper", small=False), TCMConfig()) == {
        "recipe.lr": 3e-3,
        "features": "backbone",
        "source_views": None,
        "target_views": None,
        "plain": 0.0,
        "counterfactual": 0.0,
        "agreement": 0.0,
        "alignment.kind": "proxies",
        "head.weight": 1.0,
        "prediction": "adjusted",
    }


def test_the_release_is_the_paper_but_for_what_the_authors_scripts_do():
    assert differences(preset_tcm("release", small=False), preset_tcm("paper", small=False)) == {
        "source_views": 1,
        "target_views": 1,
        "alignment.kind": "predictions",
        "alignment.dropout": 0.5,
        "head.vae.dropout": 0.3,
        "head.weighting": "mean",
        "head.swapped": True,
    }


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_for_the_small_network_a_preset_changes_sizes_and_rates_only(preset: Preset):
    assert differences(preset_tcm(preset, small=True), preset_tcm(preset, small=False)) == {
        "recipe.lr": Recipe().lr,
        "features": "bottleneck",
        "head.vae.latent": 32,
        "head.vae.encoder": (128,),
        "head.vae.decoder": (128,),
        "head.vae_lr": 1e-3,
    }


@every_preset
def test_a_preset_is_a_value(preset: Preset):
    found = preset_tcm(preset, small=False)
    assert found == PRESETS[preset]
    assert hash(found) == hash(PRESETS[preset])
    with pytest.raises(FrozenInstanceError):
        found.plain = 3.0  # pyright: ignore[reportAttributeAccessIssue]


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
    rhythm = Rhythm(steps=4, log_every=4, evaluate_every=4, save_every=1)
    with pytest.raises(
        InputError, match=rf"^the loss is not finite at step 3 \({term}\); .*/state.pt holds the last good"
    ):
        fit(make_fabric("cpu", "fp32"), method, OneBatch(), run, rhythm=rhythm, seed=0, evaluate=dict, quiet=True)


def readings(method: TCM, images: Tensor) -> dict[str, Tensor]:
    answer = method.answer(images)
    return {"": answer.logits, **answer.others}


@pytest.mark.parametrize(
    ("prediction", "names"),
    [
        ("single", [""]),
        ("average", ["", "fast"]),
        ("adjusted", ["", "fast", "f_y alone", "uniform weights", "gaussian weights"]),
    ],
)
def test_readings_are_the_prediction_and_what_it_is_to_be_compared_with(prediction, names: list[str]):
    method, images = small(prediction=prediction, head=small_head()), random_batch().target
    losses(method)  # makes the moments of the proxies known
    assert method.head is not None
    method.head.target.variance.mul_(0.01)  # a density so narrow that its weights are far from uniform
    read = readings(method.eval(), images)
    assert list(read) == names
    assert all(logits.shape == (COUNT, CLASSES) for logits in read.values())
    assert torch.equal(method.predict(images), read[""])
    said = {name: logits.log_softmax(dim=1) for name, logits in read.items()}
    same = [name for name in names if torch.allclose(said[name], said[""], rtol=1e-4)]
    assert same == ([""] if prediction != "adjusted" else ["", "gaussian weights"])  # which are the default


@pytest.mark.parametrize(
    ("prediction", "features"), [("average", "bottleneck"), ("adjusted", "bottleneck"), ("adjusted", "backbone")]
)
def test_in_a_hurry_the_prediction_is_the_reading_fast_and_asks_no_mechanism(prediction, features):
    method, images = small(prediction=prediction, features=features, head=small_head()), random_batch().target
    losses(method)
    read = readings(method.eval(), images)["fast"]
    torch.testing.assert_close(without_mechanisms(method).predict_fast(images), read)
    with pytest.raises(AssertionError, match="mechanisms are asked"):
        method.predict(images)


@pytest.mark.parametrize("prediction", ["average", "adjusted"])
def test_source_images_are_judged_without_mechanisms_and_target_images_with(prediction):
    method = small(prediction=prediction, head=small_head()).eval()
    images = torch.randint(256, (2, COUNT, 32, 32, 3), dtype=torch.uint8)
    task: Any = SimpleNamespace(source=SimpleNamespace(images=images[0]), target=SimpleNamespace(images=images[1]))
    found = judged(make_fabric("cpu", "fp32"), method, task, 32)
    seen = images.permute(0, 1, 4, 2, 3) / 255
    answers = method.answer_fast(seen[0]), method.answer(seen[1])
    for ours, its in zip(found, answers, strict=True):
        torch.testing.assert_close(ours.probabilities, its.logits.softmax(dim=1).detach())
        torch.testing.assert_close(ours.features, its.features.detach())
        assert ours.others.keys() == its.others.keys()
    assert "fast" in found.target.others
    assert not found.source.others


def test_a_single_prediction_asks_no_mechanism():
    method, images = without_mechanisms(small(prediction="single").eval()), random_batch().target
    assert torch.equal(method.predict(images), method.predict_fast(images))
    torch.testing.assert_close(method.predict(images), method.classifier(method.features(images)))


def mean_prediction(method: TCM, views: list[Tensor]) -> Tensor:
    return torch.stack([method.classifier(method.features(view)).softmax(dim=1) for view in views]).mean(dim=0)


def test_the_prediction_is_the_mean_over_the_image_and_its_counterfactuals():
    method, images = small().eval(), random_batch().target
    views = [images, *method.inverse_counterfactuals(images)]
    torch.testing.assert_close(method.predict(images).exp(), mean_prediction(method, views))


def test_mechanisms_that_are_put_together_are_one_more_view():
    method, images = small(mixing="several").eval(), random_batch().target
    made = method.inverse_counterfactuals(images)
    together = (images + (made - images).sum(dim=0)).clamp(0, 1)
    found = method.predict(images).exp()
    torch.testing.assert_close(found, mean_prediction(method, [images, *made, together]))
    assert not torch.allclose(found, mean_prediction(method, [images, *made]))


def test_the_control_without_mechanisms_asks_none():
    method, images = without_mechanisms(small(mixing="none").eval()), random_batch().target
    torch.testing.assert_close(method.predict(images).exp(), mean_prediction(method, [images]))


def test_the_mean_of_predictions_is_no_mean_of_logits():
    logits = torch.tensor([[[0.0, 0.0]], [[5.0, 0.0]], [[0.0, 9.0]]])
    torch.testing.assert_close(averaged(logits).exp(), logits.softmax(dim=-1).mean(dim=0))
    assert averaged(logits.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("mixing", ["one", "several"])
@pytest.mark.parametrize("features", ["bottleneck", "backbone"])
def test_an_adjusted_prediction_gives_the_head_the_image_and_its_k_counterfactuals(features, mixing):
    method = small(prediction="adjusted", features=features, mixing=mixing, head=small_head(weighting="mean"))
    losses(method)
    images, head = random_batch().target, method.eval().head
    assert head is not None
    x, *x_hat = (method.looked_at(view) for view in (images, *method.inverse_counterfactuals(images)))
    read = readings(method, images)
    torch.testing.assert_close(read[""], head.solved().predict(x, torch.stack(x_hat)))
    torch.testing.assert_close(read["fast"], head.solved().predict_with_mean(x))
    torch.testing.assert_close(read["f_y alone"], head.predict_alone(x))
    torch.testing.assert_close(read["uniform weights"], head.solved().predict(x, torch.stack(x_hat), "uniform"))
    torch.testing.assert_close(read["gaussian weights"], head.solved().predict(x, torch.stack(x_hat), "gaussian"))


def test_features_are_the_bottlenecks_or_the_backbones():
    images = random_batch().target
    narrow, bare = (small(features=features).eval() for features in ("bottleneck", "backbone"))
    assert torch.equal(narrow.looked_at(images), narrow.bottleneck(narrow.backbone(images)))
    assert torch.equal(bare.looked_at(images), bare.backbone(images))
    for method in (narrow, bare):
        assert torch.equal(method.classified(method.looked_at(images)), method.classifier(method.features(images)))


@pytest.mark.parametrize("features", ["bottleneck", "backbone"])
@pytest.mark.parametrize("prediction", ["single", "average"])
def test_the_features_of_an_answer_are_those_that_the_plain_classifier_reads(prediction, features):
    method, images = small(prediction=prediction, features=features).eval(), random_batch().target
    torch.testing.assert_close(method.answer(images).features, method.features(images))


@pytest.mark.parametrize("preset", ["paper", "release"])
@pytest.mark.parametrize("features", ["bottleneck", "backbone"])
def test_the_features_of_an_adjusted_answer_are_those_that_the_head_is_given(preset: Preset, features):
    method, images = small_preset(preset, features=features), random_batch().target
    losses(method)
    assert hasattr(method, "bottleneck") == (features == "bottleneck")  # no layer that nothing trains
    torch.testing.assert_close(method.eval().answer(images).features, method.looked_at(images))


@torch.no_grad()
@pytest.mark.parametrize("preset", ["paper", "release"])
def test_concluding_makes_the_targets_moments_exact_in_whatever_batches(preset: Preset):
    method = small_preset(preset)
    losses(method)  # leaves moments that are to be forgotten
    images, head = random_batch().target, method.eval().head
    assert head is not None
    of_source = head.source.mean.clone()
    x_hat = method.looked_at(method.inverse_counterfactuals(images).flatten(0, 1)).double()
    for sizes in ([4], [1, 3], [2, 1, 1]):
        method.conclude(images.split(sizes))
        assert head.target.count == K * COUNT
        torch.testing.assert_close(head.target.mean, x_hat.mean(dim=0), rtol=1e-5, atol=1e-6)
        variance = x_hat.var(dim=0, correction=0).mean()
        torch.testing.assert_close(head.target.variance, variance, rtol=1e-4, atol=0)
    assert torch.equal(head.source.mean, of_source)


def test_concluding_forgets_nothing_of_a_large_target(monkeypatch: pytest.MonkeyPatch):
    method, width = small(head=small_head()).eval(), Recipe().bottleneck
    monkeypatch.setattr(method, "inverse_counterfactuals", lambda images: images[None])
    monkeypatch.setattr(method, "looked_at", lambda images: images)
    method.conclude([torch.zeros(1, width).expand(12_000, width), torch.ones(1, width).expand(12_000, width)])
    assert method.head is not None
    torch.testing.assert_close(method.head.target.mean, torch.full((width,), 0.5, dtype=torch.float64))
    assert method.head.target.count == 24_000


def test_without_a_head_there_is_nothing_to_conclude_and_nothing_to_tell():
    method = without_mechanisms(small().eval())
    state = {name: value.clone() for name, value in method.state_dict().items()}
    method.conclude([random_batch().target])
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    assert method.diagnostics() == {}


def test_the_metrics_tell_of_the_head():
    method = small_preset("paper")
    assert method.head is not None
    assert method.diagnostics() == method.head.diagnostics()
    assert set(method.diagnostics()) >= {"head/norm", "head/smallest", "head/lost"}


def test_averaging_classifies_backbone_features_view_by_view():
    method, images = small(features="backbone").eval(), random_batch().target
    views = [images, *method.inverse_counterfactuals(images)]
    mean = torch.stack([method.classified(method.looked_at(view)).softmax(dim=1) for view in views]).mean(dim=0)
    torch.testing.assert_close(method.predict(images).exp(), mean)
