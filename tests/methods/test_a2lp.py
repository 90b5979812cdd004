import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.classifier.trained import load_trained
from tcm.cli.app import main, parsed_call
from tcm.data.augment import as_input
from tcm.data.batch import Batch
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError
from tcm.methods.a2lp import A2LP, A2LPConfig
from tcm.methods.frozen_a2lp import FrozenA2LP
from tcm.methods.method import Method, Problem, Recipe, TargetImages, TaskFeatures
from tcm.nn.backbone import BackboneConfig
from tcm.nn.label_propagation import PropagationConfig, propagated_labels
from tcm.training.run_folder import Run

CLASSES, COUNT, TOTAL = 3, 5, 9
IMAGES = torch.rand(2, TOTAL, 3, 32, 32, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(TOTAL) % CLASSES


@torch.no_grad()
def all_features(network: Callable[[Tensor], Tensor]) -> TaskFeatures:
    return TaskFeatures(network(IMAGES[0]), LABELS, network(IMAGES[1]))


def built(**own: Any) -> Method:
    torch.manual_seed(0)
    config = A2LPConfig(Recipe(bottleneck=8), hidden=8, **own)
    target = TargetImages(
        TOTAL,
        lambda method: method.predict(IMAGES[1]).softmax(dim=1),
        lambda method: method.answer(IMAGES[1]).features,
    )
    return config.build(Problem(CLASSES, BackboneConfig("small").build(), None, target, all_features))


def trained_form(**own: Any) -> A2LP:
    method = built(**own)
    assert isinstance(method, A2LP)
    return method


def batch_of(indices: list[int]) -> Batch:
    return Batch(IMAGES[0][indices], LABELS[indices], IMAGES[1][indices], target_indices=torch.tensor(indices))


def expected_labels(method: Method) -> Tensor:
    with torch.no_grad():
        found = all_features(method.backbone.eval())
    # The frozen form has maxima after the means, and propagation does not use them.
    source, target = (part[:, : method.backbone.features] for part in (found.source, found.target))
    return propagated_labels(source, found.labels, target, CLASSES, PropagationConfig())


def test_the_centroid_loss_is_its_definition():
    method = trained_form(centroids=2.0, centroid_momentum=0.6, threshold=0.8).eval()
    method.current, progress = 1, 0.25
    method.source_centroids.normal_()
    method.target_centroids.normal_()
    assert method.propagated is not None
    sure, unsure = torch.tensor([0.98, 0.01, 0.01]), torch.tensor([0.6, 0.3, 0.1])  # confidence 0.9 and 0.2
    method.propagated.copy_(torch.stack([sure.roll(i % 2) if i < 4 else unsure for i in range(TOTAL)]))
    indices = [0, 1, 2, 5, 6]  # of the target three count: classes 0, 1, 0
    batch = batch_of(indices)
    source, target = method.features(batch.source), method.features(batch.target)
    total = 0.0
    for c in range(CLASSES):
        mine = [source[i] for i in range(COUNT) if LABELS[indices[i]] == c]
        its = [[target[0], target[2]], [target[1]], []][c]
        centroids = []
        for former, rows in ((method.source_centroids[c], mine), (method.target_centroids[c], its)):
            centroids.append(0.6 * former + 0.4 * sum(rows) / len(rows) if rows else former)
        total = total + (centroids[0] - centroids[1]).square().sum() / (CLASSES * 8)
    found = method.losses(batch, progress)["centroids"]
    expected = 2 * math.tanh(5 * progress) * torch.as_tensor(total)
    torch.testing.assert_close(found, expected)
    weights = list(method.bottleneck.parameters())
    for ours, its in zip(torch.autograd.grad(found, weights), torch.autograd.grad(expected, weights), strict=True):
        torch.testing.assert_close(ours, its)


def test_a_lower_threshold_later_lets_more_labels_count():
    method = trained_form(threshold=0.8)
    method.current = 1
    assert method.propagated is not None
    method.propagated.copy_(torch.tensor([0.9, 0.1, 0.0]).expand(TOTAL, 3))  # confidence 0.70
    features, indices = torch.rand(2, 8), torch.tensor([0, 3])
    assert not method.target_labels(features, indices, 0.0).any()
    assert method.target_labels(features, indices, 0.5).tolist() == [[1, 0, 0], [1, 0, 0]]


def test_before_any_labelling_the_classifier_labels():
    method = trained_form()
    features = torch.rand(4, 8)
    expected = torch.eye(CLASSES)[method.classifier(features).argmax(dim=1)]
    assert torch.equal(method.target_labels(features, None, 0.0), expected)


def test_training_labels_the_target_at_fixed_points_by_the_features_of_the_backbone():
    method = trained_form(labellings=3).train()
    assert method.propagated is not None
    optimizers, points = method.build_optimizers(), []
    for step in range(10):
        expected, before = expected_labels(method), method.propagated.clone()
        method.train().update(batch_of([0, 1, 2, 3, 4]), step / 10, optimizers)
        if not torch.equal(before, method.propagated):
            points.append(step)
            torch.testing.assert_close(method.propagated, expected)
        assert method.training
    assert points == [0, 4, 7]
    assert method.labelled == 3
    method.eval().conclude([], [])
    torch.testing.assert_close(method.found_in_training(), {"label propagation": expected_labels(method)})


def test_who_learns_from_what_and_moving_centroids_move_only_in_training():
    method = trained_form().train()
    named = dict(method.named_parameters())

    def learning(name: str) -> set[str]:
        found = torch.autograd.grad(losses[name], list(named.values()), retain_graph=True, allow_unused=True)
        return {key.split(".")[0] for key, gradient in zip(named, found, strict=True) if gradient is not None}

    losses = method.losses(batch_of([0, 1, 2]), 0.5)
    assert learning("centroids") == {"backbone", "bottleneck"}
    assert learning("domain") == {"backbone", "bottleneck", "discriminator"}
    assert learning("classification") == {"backbone", "bottleneck", "classifier"}
    before = method.source_centroids.clone()
    assert before.any(dim=1).all()
    method.eval().losses(batch_of([3, 4, 5]), 0.5)
    assert torch.equal(before, method.source_centroids)


def test_the_features_climb_what_the_discriminator_descends(monkeypatch: pytest.MonkeyPatch):
    method = trained_form().eval()
    weights = [*method.bottleneck.parameters(), *method.discriminator.parameters()]
    below = len([*method.bottleneck.parameters()])

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(method.losses(batch_of([0, 1, 2, 3]), 0.2)["domain"], weights)

    found = gradients()
    monkeypatch.setattr("tcm.methods.dann.reverse_gradient", lambda x, factor: x)
    plain = gradients()
    for number, (ours, its) in enumerate(zip(found, plain, strict=True)):
        torch.testing.assert_close(ours, -math.tanh(5 * 0.2) * its if number < below else its)


def test_few_images_and_low_precision_give_finite_losses():
    for indices in ([0, 1], [0, 3], [2, 2]):  # the second and third have one class
        method = trained_form().train()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = method.update(batch_of(indices), 0.5, method.build_optimizers())
        assert all(loss.isfinite() and loss.dtype == torch.float32 for loss in losses.values())
        assert method.propagated is not None
        assert method.propagated.dtype == torch.float32


def test_the_frozen_form_labels_once_and_changes_no_weight():
    method = built(frozen=True).train()
    assert isinstance(method, FrozenA2LP)
    assert method.propagated is not None
    before = {name: value.clone() for name, value in method.backbone.state_dict().items()}
    optimizers, expected = method.build_optimizers(), expected_labels(method)
    method.train()
    first = method.update(batch_of([0, 1]), 0.0, optimizers)
    torch.testing.assert_close(method.propagated, expected)
    centroids = method.centroids.centroids.clone()
    assert method.update(batch_of([2, 3]), 0.5, optimizers) == first
    assert torch.equal(centroids, method.centroids.centroids)
    assert all(torch.equal(value, before[name]) for name, value in method.backbone.state_dict().items())
    assert not any(parameter.requires_grad for parameter in method.parameters())
    features = method.means(method.eval().features(IMAGES[1]))
    cosines = [[float(torch.cosine_similarity(x, c, dim=0)) for c in centroids] for x in features]
    assert method.predict(IMAGES[1]).argmax(dim=1).tolist() == torch.tensor(cosines).argmax(dim=1).tolist()


def config_of(**own: Any) -> TrainConfig[Any]:
    data = DataConfig(benchmark="digits")
    return TrainConfig(method=A2LPConfig(Recipe(bottleneck=8), hidden=8, **own), data=data, device="cpu")


def test_a_frozen_run_has_one_step_and_its_labels_are_a_prediction_variant(digits: Task, tmp_path: Path):
    config = config_of(frozen=True)
    assert config.resolved().steps == 1
    assert config_of().resolved().steps == 600
    train_classifier("a2lp", config, tmp_path, quiet=True)
    told = json.loads((tmp_path / "evaluation.json").read_text())["target"]
    assert 0 <= told["variants"]["label propagation"]["accuracy"] <= 1
    (row,) = [row for row in Run(tmp_path).metrics() if "target/accuracy" in row]
    loaded = load_trained(tmp_path).method
    assert isinstance(loaded, FrozenA2LP)
    assert loaded.propagated is None
    with torch.no_grad():
        guesses = loaded.predict(as_input(digits.target.images)).argmax(dim=1)
    assert float((guesses == digits.target.labels).float().mean()) == pytest.approx(row["target/accuracy"], abs=0.002)


def test_the_command_has_a_short_name_for_the_frozen_form(tmp_path: Path):
    words = f"train a2lp --frozen --recipe authors --data.source-dir {tmp_path} --data.target-dir {tmp_path} --out x"
    call = parsed_call(words.split()).keywords
    assert call["frozen"]
    assert call["config"].steps is None  # the length of the authors' training does not count
    assert main(f"train a2lp --frozen --data.benchmark digits --device cpu --out {tmp_path}/run".split()) == 0
    assert Run(tmp_path / "run").config()["method"]["frozen"]
    assert not [row for row in Run(tmp_path / "run").metrics() if row["step"] > 1]


def test_held_out_source_images_lend_no_labels(digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []

    def counting(source: Tensor, labels: Tensor, target: Tensor, *others: Any) -> Tensor:
        seen.extend([len(source), len(labels), len(target)])
        return propagated_labels(source, labels, target, *others)

    monkeypatch.setattr("tcm.methods.frozen_a2lp.propagated_labels", counting)
    train_classifier("a2lp", dataclasses.replace(config_of(frozen=True), held_out=0.5), tmp_path, quiet=True)
    half = pytest.approx(len(digits.source) / 2, rel=0.02)
    assert seen == [half, half, len(digits.target)]


def test_labels_cannot_come_from_neighbours_alone():
    with pytest.raises(InputError, match="spreading"):
        config_of(propagation=PropagationConfig(spreading=1.0)).resolved()


def test_the_settings_of_the_authors():
    config = A2LPConfig.authors()
    assert (config.recipe.weight_decay, config.authors_batch) == (1e-4, 64)
    assert config.propagation == PropagationConfig(rounds=6, neighbours=20, spreading=0.5)
