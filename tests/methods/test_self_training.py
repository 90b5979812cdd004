"""The methods that learn from their own predictions on the target: MCC, FixMatch, ATDOC-NA, SHOT, ICON, CST."""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.config import from_json, to_json
from tcm.data.batch import Batch, StrongViews
from tcm.methods import METHODS
from tcm.methods.atdoc import ATDOC, last_places, nearest, sharpened
from tcm.methods.cst import CST
from tcm.methods.icon import ICON, equal_ranks
from tcm.methods.method import Method, Problem, Recipe, TargetImages
from tcm.methods.sharpness import climb
from tcm.methods.shot import SHOT, centroid_labels
from tcm.nn.backbone import BackboneConfig
from tcm.nn.losses import (
    class_confusion,
    information_maximisation,
    pair_loss,
    reverse_prediction_error,
    self_training,
    tsallis_confusion,
)

CLASSES, COUNT, TOTAL = 5, 6, 9
NAMES = ["mcc", "fixmatch", "atdoc", "shot", "icon", "cst"]
every_method = pytest.mark.parametrize("name", NAMES)
STRONG = {"fixmatch", "icon", "cst"}
THRESHOLD = 0.85  # which some predictions of `narrow` reach
INDICES = torch.tensor([7, 0, 3, 8, 1, 5])


def all_target_images() -> Tensor:
    return torch.rand(TOTAL, 3, 32, 32, generator=torch.Generator().manual_seed(4))


def narrow(name: str, classes: int = CLASSES, known: bool = True, **own: Any) -> Any:
    """The method with a bottleneck of 8, and the target images if they are `known`. The weights are so large that
    predictions differ from image to image."""
    torch.manual_seed(0)
    images = all_target_images()
    target = TargetImages(
        TOTAL,
        lambda method: method.predict(images).softmax(dim=1).detach(),
        lambda method: method.answer(images).features.detach(),
    )
    config: Any = METHODS[name](**{"recipe": Recipe(bottleneck=8), **own})
    method = config.build(Problem(classes, BackboneConfig("small").build(), target=target if known else None))
    with torch.no_grad():
        for key, parameter in method.named_parameters():
            if parameter.ndim > 1 and key.startswith(("bottleneck", "classifier.weight", "cluster_head")):
                parameter.mul_(100)
        # Statistics of target images, so that predictions differ in evaluation mode too.
        for module in method.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.momentum = 1.0
        method.train().features(images)
    return method


def random_batch(count: int = COUNT, labels: Tensor | None = None) -> Batch:
    images = torch.rand(4, count, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(count) % CLASSES if labels is None else labels
    return Batch(images[0], labels, images[1], None, StrongViews(images[2], images[3]), INDICES[:count])


def gradients(loss: Tensor, method: Method) -> dict[str, bool]:
    """Whether a loss trains each part of the method."""
    parts = {name: list(part.parameters()) for name, part in method.named_children() if list(part.parameters())}
    return {
        name: any(
            found is not None and bool(found.any())
            for found in torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
        )
        for name, weights in parts.items()
    }


def require_same_gradients(loss: Tensor, plain: Tensor, method: Method, parts: tuple[str, ...] = ("",)) -> None:
    """The gradients of both losses agree for all weights of these parts, and are not 0."""
    weights = [value for key, value in method.named_parameters() if key.startswith(parts) and value.requires_grad]
    found, expected = (
        torch.autograd.grad(one, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
        for one in (loss, plain)
    )
    assert any(gradient.any() for gradient in expected)
    for ours, its in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, its, rtol=1e-3, atol=1e-6 + 1e-4 * float(its.abs().max()))


@every_method
@pytest.mark.parametrize("progress", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize(
    ("classes", "labels"),
    [(2, [0, 1]), (2, [1, 1]), (5, [0, 0, 3, 3, 3]), (3, [0, 1, 1, 1])],
    ids=["two images", "a class is missing", "classes are missing", "one image of a class"],
)
def test_small_batches_train(name: str, progress: float, classes: int, labels: list[int]):
    method = narrow(name, classes).train()
    batch = random_batch(len(labels), torch.tensor(labels))
    optimizers = method.build_optimizers()
    for _ in range(2):
        losses = method.update(batch, progress, optimizers)
        assert all(loss.isfinite() for loss in losses.values())
    assert all(value.isfinite().all() for value in method.state_dict().values())


@every_method
@pytest.mark.parametrize("progress", [0.0, 0.75])
def test_losses_are_in_single_precision_under_autocast(name: str, progress: float):
    method = narrow(name).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = method.losses(random_batch(), progress)
        updated = method.update(random_batch(), progress, method.build_optimizers())
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    assert all(loss.isfinite() for loss in updated.values())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "shot"])
def test_every_view_goes_through_the_network_in_one_pass(name: str):
    method, batch, seen = narrow(name).train(), random_batch(), []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    method.losses(batch, 0.5)
    assert batch.strong is not None
    strong = {"icon": [*batch.strong], "cst": [batch.strong.target], "fixmatch": [batch.strong.target]}.get(name, [])
    (images,) = seen
    assert torch.equal(images, torch.cat([batch.source, batch.target, *strong]))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("fixmatch", [COUNT] * 3), ("atdoc", [COUNT] * 2), ("icon", [2 * COUNT] * 2), ("cst", [2 * COUNT, COUNT])],
)
def test_the_authors_pass_kinds_of_images_on_their_own(name: str, sizes: list[int]):
    separate, seen = narrow(name, separate_passes=True), []
    separate.backbone.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    together = narrow(name)
    # In evaluation mode no image depends on the others, so the losses are the same.
    one, other = (method.eval().losses(random_batch(), 0.5) for method in (separate, together))
    assert seen == sizes
    for key in one:
        torch.testing.assert_close(one[key], other[key])


@every_method
def test_the_settings_of_the_authors(name: str):
    config: Any = METHODS[name].authors()
    assert config != METHODS[name]()
    assert from_json(METHODS[name], to_json(config)) == config
    steps, batch = config.authors_steps, config.authors_batch
    assert (steps, batch) == {
        "mcc": (30_000, 36),
        "fixmatch": (20_000, 32),
        "atdoc": (6_000, 36),
        "shot": (4_000, 64),
        "icon": (50_000, 28),
        "cst": (30_000, 28),
    }[name]
    small = replace(config, recipe=replace(config.recipe, bottleneck=8))
    method = small.build(Problem(CLASSES, BackboneConfig("small").build()))
    # The decay of the authors' code at step i: 0.001 i, for FixMatch 0.0004 i, otherwise 10 p.
    rate = {"mcc": 30, "fixmatch": 8, "icon": 50, "cst": 30}.get(name, 10)
    assert method.lr_factor(1.0) == pytest.approx((1 + rate) ** -0.75)
    losses = method.train().update(random_batch(), 0.9, method.build_optimizers())
    assert all(loss.isfinite() for loss in losses.values())


@every_method
def test_only_methods_with_strong_views_ask_for_them(name: str):
    assert METHODS[name]().strong_counterfactuals == (0.0 if name in STRONG else None)


@every_method
def test_a_saved_model_needs_no_target_images(name: str):
    known, unknown = narrow(name), narrow(name, known=False)
    assert {*known.state_dict()} - {*unknown.state_dict()} == {*known.training_only}
    # Without target images, as in the count of costs, the losses that need their memory are left out.
    assert unknown.losses(random_batch()._replace(target_indices=None), 0.75)


def test_mcc_is_its_terms():
    method, batch = narrow("mcc", trade_off=3.0, temperature=1.5).eval(), random_batch()
    losses = method.losses(batch, 0.1)
    torch.testing.assert_close(losses["classification"], F.cross_entropy(method.predict(batch.source), batch.labels))
    logits = method.predict(batch.target)
    torch.testing.assert_close(losses["confusion"], 3 * class_confusion(logits, 1.5))
    # The matrix of the paper, built image by image.
    p = (logits / 1.5).softmax(dim=1).detach().double().numpy()
    weights = np.array([1 + math.exp((row * np.log(row)).sum()) for row in p])
    matrix = np.einsum("i,ij,ik->jk", weights * COUNT / weights.sum(), p, p)
    expected = sum(matrix[i, j] / matrix[i].sum() for i in range(CLASSES) for j in range(CLASSES) if i != j) / CLASSES
    assert losses["confusion"].item() == pytest.approx(3 * expected, rel=1e-4)
    # The gradient is that of the matrix with constant weights.
    p = (logits / 1.5).softmax(dim=1)
    scaled = torch.from_numpy(weights * COUNT / weights.sum()).float()
    matrix = (scaled[:, None] * p).T @ p
    plain = 3 * (1 - (matrix.diagonal() / matrix.sum(dim=1)).mean())
    require_same_gradients(losses["confusion"], plain, method)
    assert gradients(losses["confusion"], method) == {"backbone": True, "bottleneck": True, "classifier": True}


def test_fixmatch_is_its_terms():
    method, batch = narrow("fixmatch", trade_off=3.0, threshold=THRESHOLD).eval(), random_batch()
    assert batch.strong is not None
    losses = method.losses(batch, 0.0)  # no ramp: the labels teach from the first step on
    weak, strong = (method.predict(images).softmax(dim=1) for images in (batch.target, batch.strong.target))
    expected, kept = 0.0, 0
    for label, other in zip(weak, strong, strict=True):
        if label.max() >= THRESHOLD:
            expected, kept = expected - 3 * other[label.argmax()].log().item() / COUNT, kept + 1
    assert 0 < kept < COUNT
    assert losses["pseudo_labels"].item() == pytest.approx(expected, rel=1e-4)
    # Labels and confidence are constants: the gradient is that of a classification of the strong views.
    used, labels = weak.max(dim=1).values >= THRESHOLD, weak.argmax(dim=1)
    plain = -3 * strong[used, labels[used]].log().sum() / COUNT
    require_same_gradients(losses["pseudo_labels"], plain, method)


def test_the_neighbours_of_an_image_are_a_plain_search():
    features, memory = torch.randn(COUNT, 4).double(), F.normalize(torch.randn(TOTAL, 4).double(), dim=1)
    found = nearest(features, memory, INDICES, 3)
    for row, own, near in zip(features, INDICES.tolist(), found.tolist(), strict=True):
        cosines = {n: float(row @ memory[n] / row.norm()) for n in range(TOTAL) if n != own}
        assert near == sorted(cosines, key=lambda n: -cosines[n])[:3]
    assert nearest(features[:2], memory[:2], torch.tensor([0, 1]), 5).tolist() == [[1], [0]]


def test_sharpening_balances_the_classes_of_a_batch():
    p = torch.tensor([[0.8, 0.2, 0.0], [0.4, 0.6, 0.0]])
    expected = torch.tensor([[0.64 / 0.8, 0.04 / 0.4, 0.0], [0.16 / 0.8, 0.36 / 0.4, 0.0]])
    torch.testing.assert_close(sharpened(p), expected)


def test_atdoc_is_its_terms_by_a_plain_loop():
    method, batch = narrow("atdoc", trade_off=0.7, neighbours=3, smoothing=0.2).eval(), random_batch()
    assert isinstance(method, ATDOC)
    assert method.memory is not None
    assert method.votes is not None
    torch.manual_seed(2)
    memory = method.memory.copy_(F.normalize(torch.randn(TOTAL, 8).abs(), dim=1))
    method.votes.copy_(torch.rand(TOTAL, CLASSES))
    losses = method.losses(batch, 0.3)
    weighted, total = 0.0, 0.0
    for image, own in zip(batch.target, INDICES.tolist(), strict=True):
        feature, logits = method.features(image[None])[0], method.predict(image[None])[0]
        order = sorted((n for n in range(TOTAL) if n != own), key=lambda n: -float(feature.detach() @ memory[n]))
        vote = sum(method.votes[n] for n in order[:3]) / 3
        assert isinstance(vote, Tensor)
        weighted += vote.max().item() * -logits.log_softmax(dim=0)[vote.argmax()].item()
        total += vote.max().item()
    assert losses["neighbours"].item() == pytest.approx(0.7 * 0.3 * weighted / total, rel=1e-4)
    logs = method.predict(batch.source).log_softmax(dim=1)
    smooth = 0.8 * F.one_hot(batch.labels, CLASSES) + 0.2 / CLASSES
    torch.testing.assert_close(losses["classification"], -(smooth * logs).sum(dim=1).mean())
    logs, loops = method.predict(batch.target).log_softmax(dim=1), []
    for row, feature, own in zip(logs, method.features(batch.target).detach(), INDICES.tolist(), strict=True):
        order = sorted((n for n in range(TOTAL) if n != own), key=lambda n: -float(feature @ memory[n]))
        vote = method.votes[order[:3]].mean(dim=0)
        loops.append(-vote.max() * row[vote.argmax()])
    require_same_gradients(losses["neighbours"], 0.7 * 0.3 * torch.stack(loops).sum() / total, method)
    assert gradients(losses["neighbours"], method) == {"backbone": True, "bottleneck": True, "classifier": True}


def test_atdoc_remembers_the_images_of_the_batch_in_evaluation_mode():
    method, batch = narrow("atdoc").train(), random_batch()
    assert torch.equal(method.memory, torch.zeros(TOTAL, 8))
    method.update(batch, 0.5, method.build_optimizers())
    assert method.training
    method.eval()
    torch.testing.assert_close(method.memory[INDICES], F.normalize(method.features(batch.target), dim=1))
    p = method.predict(batch.target).softmax(dim=1)
    torch.testing.assert_close(method.votes[INDICES], p**2 / (p**2).sum(dim=0))
    others = [n for n in range(TOTAL) if n not in INDICES.tolist()]
    assert not method.memory[others].any()
    assert (method.votes[others] == 1 / CLASSES).all()
    assert not method.memory.requires_grad


def test_the_last_places_of_images():
    assert last_places(torch.tensor([2, 4, 2, 4, 1, 2])).tolist() == [5, 3, 5, 3, 4, 5]
    assert last_places(INDICES).tolist() == list(range(COUNT))


def test_atdoc_remembers_the_last_view_of_an_image_that_is_in_the_batch_twice():
    method = narrow("atdoc").eval()
    batch = random_batch()._replace(target_indices=torch.tensor([2, 4, 2, 4, 1, 2]))
    method.remember(batch)
    expected = F.normalize(method.features(batch.target), dim=1)
    for image, view in ((2, 5), (4, 3), (1, 4)):
        torch.testing.assert_close(method.memory[image], expected[view])


def test_the_centroid_labels_are_a_plain_loop():
    torch.manual_seed(3)
    features, p = torch.randn(20, 3).double(), (3 * torch.randn(20, CLASSES)).double()
    p = p.softmax(dim=1)
    x = np.concatenate([features.numpy(), np.ones((20, 1))], axis=1)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    shares, labels = p.numpy(), p.numpy().argmax(axis=1)
    for _ in range(2):
        present = [c for c in range(CLASSES) if (labels == c).any()]
        centres = {c: (shares[:, c, None] * x).sum(axis=0) / (shares[:, c].sum() + 1e-8) for c in present}
        labels = np.array(
            [max(present, key=lambda c, row=row: row @ centres[c] / np.linalg.norm(centres[c])) for row in x]
        )
        shares = np.eye(CLASSES)[labels]
    assert centroid_labels(features, p).tolist() == labels.tolist()
    assert labels.tolist() != p.argmax(dim=1).tolist()


def test_a_class_that_no_image_has_gets_no_centroid():
    features = torch.tensor([[10.0, 0.0], [0.0, 10.0], [10.0, 9.0]])
    classes = torch.tensor([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.41, 0.19, 0.40]])  # the third is the last class's mean
    assert centroid_labels(features, classes).tolist() == [0, 1, 0]


def test_shot_learns_the_source_and_then_the_target():
    method, batch = narrow("shot", smoothing=0.2, information=2.0, pseudo_labels=0.7).eval(), random_batch()
    assert isinstance(method, SHOT)
    assert method.labels is not None
    (loss,) = method.losses(batch, 0.4).values()
    logs = method.predict(batch.source).log_softmax(dim=1)
    smooth = 0.8 * F.one_hot(batch.labels, CLASSES) + 0.2 / CLASSES
    torch.testing.assert_close(loss, -(smooth * logs).sum(dim=1).mean())
    method.labels.copy_(torch.arange(TOTAL) % CLASSES)
    losses = method.losses(batch, 0.5)
    logits = method.predict(batch.target)
    torch.testing.assert_close(losses["information"], 2 * information_maximisation(logits))
    torch.testing.assert_close(losses["pseudo_labels"], 0.7 * F.cross_entropy(logits, INDICES % CLASSES))
    # Each image becomes certain, and the batch stays spread over the classes.
    p = logits.softmax(dim=1)
    spread = -(p.mean(dim=0) * p.mean(dim=0).log()).sum()
    plain = 2 * (-(p * p.log()).sum(dim=1).mean() - spread)
    require_same_gradients(losses["information"], plain, method, ("backbone.", "bottleneck."))
    # Each phase sees one domain only.
    for progress, unused in ((0.4, {"target": batch.source}), (0.6, {"source": batch.target})):
        found, other = method.losses(batch, progress), method.losses(batch._replace(**unused), progress)
        assert all(torch.equal(found[key], other[key]) for key in found)


def test_each_phase_of_shot_has_the_whole_schedule():
    method = narrow("shot", source_share=0.25)
    assert [method.place(p) for p in (0.0, 0.125, 0.25, 1.0)] == [(False, 0), (False, 0.5), (True, 0), (True, 1)]
    assert method.lr_factor(0.0) == method.lr_factor(0.25) == 1
    assert method.lr_factor(0.125) == method.lr_factor(0.625) == 6**-0.75
    assert narrow("shot", source_share=0.0).place(0.0) == (True, 0.0)


def test_the_classifier_of_shot_is_fixed_in_the_second_phase():
    method, batch = narrow("shot").train(), random_batch()
    optimizers = method.build_optimizers()
    method.update(batch, 0.4, optimizers)  # momentum that would move the classifier on
    after_source = copy.deepcopy(method.classifier.state_dict())
    bottleneck = method.bottleneck[0].weight.clone()
    for progress in (0.5, 0.7, 0.9):
        method.update(batch, progress, optimizers)
    assert all(torch.equal(value, after_source[key]) for key, value in method.classifier.state_dict().items())
    assert not torch.equal(method.bottleneck[0].weight, bottleneck)


def test_the_momentum_of_the_source_ends_with_the_first_phase():
    batch, momenta = random_batch(), []
    for steps in ([0.4, 0.5], [0.5]):
        method = narrow("shot").train()
        start = copy.deepcopy(method.state_dict())
        optimizers = method.build_optimizers()
        for progress in steps:
            if progress == 0.5:
                method.load_state_dict(start)
            method.update(batch, progress, optimizers)
        momenta.append(optimizers["sgd"].state[method.bottleneck[0].weight]["momentum_buffer"])
    torch.testing.assert_close(momenta[0], momenta[1])


def test_the_labels_of_shot_are_computed_at_fixed_points(monkeypatch: pytest.MonkeyPatch):
    method, at = narrow("shot", refreshes=4).train(), []
    refresh = method.refresh
    monkeypatch.setattr(method, "refresh", lambda number: (at.append(number), refresh(number)))
    optimizers = method.build_optimizers()
    for step in range(20):
        method.update(random_batch(), step / 20, optimizers)
    assert at == [1, 2, 3, 4]
    assert method.refreshed == 4
    assert method.training
    method.eval()
    images = all_target_images()
    refresh(4)
    method.eval()
    expected = centroid_labels(method.features(images), method.predict(images).softmax(dim=1))
    assert torch.equal(method.labels, expected)


def test_cst_is_its_terms():
    weights: Any = {"cycle": 3.0, "confusion": 0.7, "temperature": 1.5, "pseudo_labels": 0.9}
    method, batch = narrow("cst", threshold=THRESHOLD, **weights).eval(), random_batch()
    assert isinstance(method, CST)
    assert batch.strong is not None
    losses = method.losses(batch, 0.0)
    own, target, strong = (method.predict(x) for x in (batch.source, batch.target, batch.strong.target))
    torch.testing.assert_close(losses["classification"], F.cross_entropy(own, batch.labels))
    torch.testing.assert_close(losses["confusion"], 0.7 * tsallis_confusion(target, 1.5, 1.9))
    torch.testing.assert_close(losses["pseudo_labels"], 0.9 * self_training(target, strong, THRESHOLD))
    assert losses["pseudo_labels"] > 0
    source_features, target_features = method.backbone(batch.source), method.backbone(batch.target)
    cycle = reverse_prediction_error(
        target_features, target.argmax(dim=1), source_features, batch.labels, classes=CLASSES
    )
    torch.testing.assert_close(losses["cycle"], 3 * cycle)
    # The pseudo-labels of the cycle are constants, and its classifier is solved for: only the backbone learns from it.
    assert gradients(losses["cycle"], method) == {"backbone": True, "bottleneck": False, "classifier": False}
    assert gradients(losses["confusion"], method) == {"backbone": True, "bottleneck": True, "classifier": True}


def test_images_with_the_same_largest_features_belong_together():
    features = torch.tensor([[9.0, 8.0, 0.0, 1.0], [5.0, 7.0, 1.0, 2.0], [9.0, 0.0, 8.0, 1.0], [4.0, 0.0, 0.0, 3.0]])
    found = equal_ranks(features, 2)
    expected = torch.eye(4).bool()
    expected[0, 1] = expected[1, 0] = True
    assert torch.equal(found, expected)
    assert equal_ranks(features, 9).all()  # more than there are


def test_icon_is_its_terms():
    weights: Any = {"confusion": 0.7, "pseudo_labels": 0.9, "clusters": 1.3, "consistency": 1.7, "invariance": 0.4}
    method, batch = narrow("icon", threshold=THRESHOLD, largest=1, **weights).eval(), random_batch()
    assert isinstance(method, ICON)
    assert batch.strong is not None
    losses = method.losses(batch, 0.2)

    def outputs(images: Tensor) -> tuple[Tensor, Tensor]:
        features = method.features(images)
        return method.classifier(features), method.cluster_head(features)

    (y_s, c_s), (y_t, c_t) = outputs(batch.source), outputs(batch.target)
    (y_s2, c_s2), (y_t2, c_t2) = outputs(batch.strong.source), outputs(batch.strong.target)
    top = method.backbone(batch.target).argmax(dim=1).tolist()
    together = torch.tensor([[a == b for a in top] for b in top])
    alike = torch.tensor([[a == b for a in batch.labels.tolist()] for b in batch.labels.tolist()])
    assert together.sum() > COUNT
    assert alike.sum() > COUNT
    expected = {
        "classification": F.cross_entropy(y_s, batch.labels),
        "confusion": 0.7 * tsallis_confusion(y_t, 2.5, 1.9),
        "pseudo_labels": 0.9 * (self_training(y_t, y_t2, THRESHOLD) + self_training(c_t, c_t2, THRESHOLD)),
        "clusters": 1.3 * pair_loss(c_t, c_t2, together),
        "consistency": 1.7 * (pair_loss(y_t, y_t2, together) + pair_loss(c_s, c_s2, alike)),
        "invariance": 0.4 * torch.stack([pair_loss(y_t, y_t2, together), pair_loss(y_s, y_s2, alike)]).var(),
    }
    assert losses.keys() == expected.keys()
    for key in expected:
        torch.testing.assert_close(losses[key], expected[key], msg=key)


def test_which_parts_of_icon_learn_from_which_term():
    method = narrow("icon", threshold=0.0).eval()
    losses = method.losses(random_batch(), 0.5)
    found = {key: [part for part, learns in gradients(loss, method).items() if learns] for key, loss in losses.items()}
    shared = ["backbone", "bottleneck"]
    assert found == {
        "classification": [*shared, "classifier"],
        "confusion": [*shared, "classifier"],
        "pseudo_labels": [*shared, "classifier", "cluster_head"],
        "clusters": [*shared, "cluster_head"],
        "consistency": ["classifier", "cluster_head"],
        "invariance": [*shared, "classifier"],
    }


def test_the_invariance_of_icon_begins_after_a_fifth_of_the_training():
    method = narrow("icon").eval()
    assert method.losses(random_batch(), 0.199)["invariance"] == 0
    assert method.losses(random_batch(), 0.2)["invariance"] > 0


def test_climbing_by_hand():
    first, second = torch.tensor([2.0, -1.0]), torch.tensor([[0.0, 3.0]])
    first.grad, second.grad = torch.tensor([1.0, 2.0]), torch.tensor([[5.0, -1.0]])
    before = first.clone(), second.clone()
    start = climb([first, second], 0.5)
    norm = math.sqrt((2 * 1) ** 2 + (-1 * 2) ** 2 + 0 + (3 * -1) ** 2)
    torch.testing.assert_close(first, torch.tensor([2 + 0.5 * 4 * 1 / norm, -1 + 0.5 * 1 * 2 / norm]))
    torch.testing.assert_close(second, torch.tensor([[0.0, 3 + 0.5 * 9 * -1 / norm]]))
    assert all(torch.equal(one, other) for one, other in zip(start, before, strict=True))


@pytest.mark.parametrize("name", ["cst", "icon"])
def test_a_step_of_sam_is_a_plain_version_of_it(name: str):
    ours = narrow(name, rho=0.5).double().train()
    plain, batch = copy.deepcopy(ours), random_batch()
    assert batch.strong is not None
    doubled = StrongViews(*(part.double() for part in batch.strong))
    batch = batch._replace(source=batch.source.double(), target=batch.target.double(), strong=doubled)
    found = ours.update(batch, 0.5, ours.build_optimizers())
    (optimizer,) = plain.build_optimizers().values()
    weights = list(plain.parameters())
    losses = plain.losses(batch, 0.5)
    slopes = torch.autograd.grad(sum(losses.values(), torch.zeros(())), weights)
    norm = math.sqrt(sum(float((w * g).detach().square().sum()) for w, g in zip(weights, slopes, strict=True)))
    before = [w.detach().clone() for w in weights]
    with torch.no_grad():
        for w, g in zip(weights, slopes, strict=True):
            w += 0.5 * w**2 * g / norm
    sum(plain.losses(batch, 0.5).values(), torch.zeros(())).backward()
    with torch.no_grad():
        for w, old in zip(weights, before, strict=True):
            w.copy_(old)
    optimizer.step()
    for (key, one), other in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10, msg=key)
    assert found.keys() == losses.keys()
    assert all(torch.equal(found[key], losses[key]) for key in losses)
    without = narrow(name).double().train()
    without.update(batch, 0.5, without.build_optimizers())
    assert not torch.allclose(without.bottleneck[0].weight, ours.bottleneck[0].weight, atol=1e-6)
