"""The default form of TCM in training: its terms, its rounds, and what its control changes."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.small_tcm import COUNT, losses, random_batch, small, small_tcm
from torch import Tensor

from tcm.methods.method import Problem, TargetImages
from tcm.methods.tcm.centroids import CentroidClassifier
from tcm.methods.tcm.control import ControlConfig
from tcm.methods.tcm.tcm import TCM, TCMConfig
from tcm.nn.backbone import BackboneConfig
from tcm.nn.losses import class_confusion
from tcm.nn.schedules import inverse_decay, ramp_up

TERMS = {"classification", "confusion", "pseudo_labels"}
TARGET = 6  # target images, of which a batch has COUNT


def in_rounds(rounds: int = 2, seed: int = 0) -> TCM:
    """A method that is trained in rounds on TARGET images; its predictions for them are those of their numbers."""
    torch.manual_seed(seed)
    images = torch.rand(TARGET, 3, 32, 32, generator=torch.Generator().manual_seed(4))
    target = TargetImages(
        TARGET,
        lambda method: method.predict(images).softmax(dim=1).detach(),
        lambda method: method.features(images).detach(),
    )
    config = TCMConfig.for_images(small=True)
    method = TCMConfig(recipe=config.recipe, rounds=rounds).build(
        Problem(5, BackboneConfig("small").build(), target=target)
    )
    assert isinstance(method, TCM)
    return method


def test_the_terms_of_the_default_and_of_its_control():
    assert losses(small("tcm")).keys() == losses(small("tcm-control")).keys() == TERMS


def test_all_four_views_of_a_step_go_through_the_backbone_at_once():
    method, seen = small("tcm"), []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    losses(method)
    (views,) = seen
    batch = random_batch()
    assert batch.strong is not None
    assert torch.equal(views, torch.cat([batch.source, batch.strong.source, batch.target, batch.strong.target]))


def test_the_terms_by_hand():
    method = small_tcm(weak=0.3, strong=0.4, confusion=0.6, pseudo_labels=0.7, threshold=0.0).train()
    batch, prior = random_batch(), method.labeller.prior.clone()
    assert batch.strong is not None
    found = losses(method, 0.2)
    views = torch.cat([batch.source, batch.strong.source, batch.target, batch.strong.target])
    own, strong, target, strong_target = method.classifier(method.features(views)).split(COUNT)
    expected = 0.3 * F.cross_entropy(own, batch.labels) + 0.4 * F.cross_entropy(strong, batch.labels)
    torch.testing.assert_close(found["classification"], expected)
    torch.testing.assert_close(found["confusion"], 0.6 * class_confusion(target, 2.5))
    predicted = target.softmax(dim=1)
    guesses = (predicted / (0.98 * prior + 0.02 * predicted.mean(dim=0))).argmax(dim=1)
    expected = 0.7 * ramp_up(0.2) * F.cross_entropy(strong_target, guesses)
    torch.testing.assert_close(found["pseudo_labels"], expected)


def test_the_control_is_the_same_method_without_mechanisms():
    assert not ControlConfig.uses_counterfactuals
    default, control = losses(small("tcm")), losses(small("tcm-control"))
    assert all(torch.equal(default[name], control[name]) for name in TERMS)


@pytest.mark.parametrize(
    ("weight", "term"), [("confusion", "confusion"), ("pseudo_labels", "pseudo_labels"), ("weak", "classification")]
)
def test_without_its_weight_a_term_is_smaller_and_the_others_stay(weight: str, term: str):
    with_it, without = (losses(small("tcm", threshold=0.0, **{weight: value})) for value in (1.0, 0.0))
    assert without[term] < with_it[term]
    assert all(torch.equal(without[name], with_it[name]) for name in with_it if name != term)


def test_pseudo_labels_are_off_at_the_start():
    assert losses(small("tcm", threshold=0.0), 0.0)["pseudo_labels"] == 0


def test_the_labels_come_from_weak_views_without_gradient():
    method = small_tcm(threshold=0.0)
    seen: list[Tensor] = []
    method.labeller.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    losses(method)
    assert not seen[0].requires_grad


def test_prediction_takes_one_pass_and_no_mechanism():
    method, seen = small_tcm().eval(), []
    assert method.inverse is None or not method.config.runs_inverse
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    images = random_batch().target
    found = method.answer(images)
    assert seen == [COUNT]
    torch.testing.assert_close(found.logits, method.classifier(method.features(images)))


def test_in_the_end_the_centroids_of_all_target_images_predict():
    method, images = small_tcm().eval(), random_batch().target
    linear, features = method.answer(images).logits, method.features(images)
    method.conclude([images[:1], images[1:]], ())
    found = method.answer(images)
    assert list(found.variants) == ["linear classifier"]
    torch.testing.assert_close(found.variants["linear classifier"], linear)
    expected = CentroidClassifier(5, method.recipe.bottleneck)
    expected.fit(features, linear.softmax(dim=1))
    torch.testing.assert_close(found.logits, expected(features), rtol=1e-4, atol=1e-2)  # the scale is large
    assert not torch.allclose(found.logits.softmax(dim=1), linear.softmax(dim=1))
    assert method.diagnostics() == {}


def test_what_follows_the_backbone_is_in_single_precision():
    method, images = small_tcm().eval(), random_batch().target
    with torch.autocast("cpu", torch.bfloat16):
        found = method.answer(images)
        assert method.backbone(images).dtype == torch.bfloat16
    assert found.logits.dtype == found.features.dtype == torch.float32


def test_every_round_has_the_whole_schedule():
    method = in_rounds(2)
    assert [method.place(progress) for progress in (0.0, 0.25, 0.5, 0.75)] == [(0, 0.0), (0, 0.5), (1, 0.0), (1, 0.5)]
    assert method.lr_factor(0.5) == 1
    assert method.lr_factor(0.75) == method.lr_factor(0.25) == inverse_decay(0.5)
    assert small_tcm(rounds=2).place(0.75) == (0, 0.75)  # without target images there is only one round


def batch_of_target():
    return random_batch()._replace(target_indices=torch.tensor([1, 3, 4, 5]))


def test_a_round_starts_from_the_initial_weights_with_the_labels_of_the_former():
    method = in_rounds(2)
    start = {name: value.clone() for name, value in method.state_dict().items()}
    optimizers = method.build_optimizers()
    method.train()
    for progress in (0.0, 0.25):
        method.update(batch_of_target(), progress, optimizers)
    assert method.round == 0
    method.eval()
    assert method.target_images is not None
    found = method.target_images.predict(method)
    method.train()
    method.start_round(1, optimizers)
    differing = [name for name, value in method.state_dict().items() if not torch.equal(value, start[name])]
    assert sorted(differing) == ["former", "round"]
    assert not any(optimizer.state for optimizer in optimizers.values())
    assert method.training
    balanced = found / found.mean(dim=0)
    assert method.former is not None
    torch.testing.assert_close(method.former, balanced / balanced.sum(dim=1, keepdim=True))


def test_the_former_labels_are_those_of_the_batch_and_fade_in_half_a_round():
    method = in_rounds(2).train()
    optimizers = method.build_optimizers()
    heard: list[tuple[Tensor | None, float]] = []
    method.labeller.register_forward_pre_hook(
        lambda _, args: heard.append((args[1], args[2]) if len(args) > 1 else (None, 0.0))
    )
    for progress in (0.0, 0.5, 0.625, 0.75, 0.9):
        method.update(batch_of_target(), progress, optimizers)
    assert method.former is not None
    assert heard[0] == (None, 0.0)
    assert [share for _, share in heard[1:]] == [1.0, 0.5, 0.0, 0.0]
    former = heard[1][0]
    assert former is not None
    assert torch.equal(former, method.former[[1, 3, 4, 5]])


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_restart_in_any_round_changes_nothing(at: int):
    def steps(method: TCM, places: list[int], optimizers: dict) -> None:
        for step in places:
            torch.manual_seed(step)
            method.train().update(batch_of_target(), step / 4, optimizers)

    whole = in_rounds(2)
    steps(whole, [0, 1, 2, 3], whole.build_optimizers())
    first = in_rounds(2)
    optimizers = first.build_optimizers()
    steps(first, list(range(at)), optimizers)
    second = in_rounds(2)
    second.load_state_dict(first.state_dict())
    again = second.build_optimizers()
    again["sgd"].load_state_dict(optimizers["sgd"].state_dict())
    steps(second, list(range(at, 4)), again)
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in whole.state_dict().items())


def test_confusion_by_hand():
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.4, 0.3], [-3.0, 1.0, 1.0]])
    classes = (logits / 2.5).softmax(dim=1)
    weights = 1 + (classes * classes.log()).sum(dim=1).exp()
    weights = weights * 3 / weights.sum()
    matrix = classes.T @ weights.diag() @ classes
    matrix = matrix / matrix.sum(dim=1, keepdim=True)
    expected = (matrix.sum() - matrix.trace()) / 3
    torch.testing.assert_close(class_confusion(logits, 2.5), expected)
    sure = 1000 * torch.eye(3)
    assert class_confusion(sure, 2.5) < 1e-6
    assert math.isfinite(class_confusion(sure[:1].repeat(3, 1), 2.5))  # two classes have no probability at all


def test_the_model_file_has_no_labels_of_target_images(tmp_path: Path):
    assert TCM.training_only == ("former",)
    assert "former" in in_rounds().state_dict()
    assert "former" not in small("tcm").state_dict()
