"""The forms of TCM in prediction, and what is left to do before one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.small_tcm import (
    CLASSES,
    COUNT,
    losses,
    random_batch,
    small,
    small_paper,
    without_mechanisms,
)
from torch import Tensor

from tcm.classifier.evaluate import predict_task
from tcm.data.store import pack_arrays
from tcm.data.task import Task
from tcm.methods.method import Method, Recipe
from tcm.training.device import make_fabric


def variants(method: Method, images: Tensor) -> dict[str, Tensor]:
    answer = method.answer(images)
    return {"": answer.logits, **answer.variants}


@pytest.mark.parametrize(
    ("form", "names", "same"),
    [
        ("tcm-paper", ["", "fast", "f_y alone", "uniform weights", "gaussian weights"], ["", "gaussian weights"]),
        ("tcm-release", ["", "f_y alone", "plain classifier"], [""]),
    ],
)
def test_the_variants_are_other_predictions_to_compare_with(form: str, names: list[str], same: list[str]):
    method, images = small(form), random_batch().target
    losses(method)  # makes the moments of the proxies known
    if form in ("tcm-paper", "tcm-release"):
        # A density so narrow that its weights are far from uniform.
        method.get_submodule("head.target").get_buffer("variance").mul_(0.01)
    found = variants(method.eval(), images)
    assert list(found) == names
    assert all(logits.shape == (COUNT, CLASSES) for logits in found.values())
    assert torch.equal(method.predict(images), found[""])
    said = {name: logits.log_softmax(dim=1) for name, logits in found.items()}
    assert [name for name in names if torch.allclose(said[name], said[""], rtol=1e-4)] == same


@pytest.mark.parametrize(
    ("form", "settings"),
    [("tcm-paper", {"input": "bottleneck"}), ("tcm-paper", {"input": "backbone"})],
)
def test_the_fast_prediction_is_the_variant_fast_and_runs_no_mechanism(form: str, settings: dict[str, Any]):
    method, images = small(form, **settings), random_batch().target
    losses(method)
    fast = variants(method.eval(), images)["fast"]
    torch.testing.assert_close(without_mechanisms(method).predict_fast(images), fast)
    with pytest.raises(AssertionError, match="mechanisms are asked"):
        method.predict(images)


@pytest.mark.parametrize("form", ["tcm-paper"])
def test_source_images_are_predicted_without_mechanisms_and_target_images_with(form: str, tmp_path: Path):
    method = small(form).eval()
    images = torch.randint(256, (2, COUNT, 32, 32, 3), dtype=torch.uint8)
    labels, paths = torch.zeros(COUNT, dtype=torch.long).numpy(), [f"{number}.png" for number in range(COUNT)]
    stores = (
        pack_arrays(name, pixels.numpy(), labels, ["a", "b"], paths, tmp_path / name)
        for name, pixels in zip(("source", "target"), images, strict=True)
    )
    task = Task(*stores)
    found = predict_task(make_fabric("cpu", "fp32"), method, task, 32)
    seen = images.permute(0, 1, 4, 2, 3) / 255
    answers = method.answer_fast(seen[0]), method.answer(seen[1])
    for ours, its in zip(found, answers, strict=True):
        torch.testing.assert_close(ours.probabilities, its.logits.softmax(dim=1).detach())
        torch.testing.assert_close(ours.features, its.features.detach())
        assert ours.variants.keys() == its.variants.keys()
    assert "fast" in found.target.variants
    assert not found.source.variants


@pytest.mark.parametrize("input", ["bottleneck", "backbone"])
def test_h_y_is_given_the_image_and_its_k_counterfactuals(input: Any):
    method = small_paper(input=input)
    losses(method)
    images, head = random_batch().target, method.eval().head
    x, *x_hat = (method.features(view) for view in (images, *method.inverse_counterfactuals(images)))
    found = variants(method, images)
    torch.testing.assert_close(found[""], head.solved().predict(x, torch.stack(x_hat)))
    torch.testing.assert_close(found["fast"], head.solved().predict_with_mean(x))
    torch.testing.assert_close(found["f_y alone"], head.predict_alone(x))
    torch.testing.assert_close(found["uniform weights"], head.solved().predict(x, torch.stack(x_hat), "uniform"))
    torch.testing.assert_close(found["gaussian weights"], head.solved().predict(x, torch.stack(x_hat), "gaussian"))


@pytest.mark.parametrize("form", ["tcm", "tcm-control", "tcm-paper", "tcm-release"])
def test_the_features_of_an_answer_are_those_that_its_logits_are_computed_from(form: str):
    method, images = small(form), random_batch().target
    losses(method)
    torch.testing.assert_close(method.eval().answer(images).features, method.features(images))


def test_the_features_are_the_bottlenecks_or_the_backbones():
    images = random_batch().target
    narrow, bare = (small("tcm-paper", input=input).eval() for input in ("bottleneck", "backbone"))
    assert torch.equal(narrow.features(images), narrow.bottleneck(narrow.backbone(images)))
    assert torch.equal(bare.features(images), bare.backbone(images))
    assert not hasattr(bare, "bottleneck")  # no layer that nothing trains


@torch.no_grad()
def test_concluding_makes_both_domains_moments_exact_in_whatever_batches():
    method, batch = small_paper(), random_batch()
    losses(method)  # leaves moments that are to be replaced
    assert batch.counterfactuals is not None
    target, source, made, head = batch.target, batch.source, batch.counterfactuals.source, method.eval().head
    expected = (
        (head.target, method.features(method.inverse_counterfactuals(target).flatten(0, 1)).double()),
        (head.source, method.features(made.flatten(0, 1)).double()),
    )
    for sizes in ([4], [1, 3], [2, 1, 1]):
        pairs = zip(source.split(sizes), made.split(sizes, dim=1), strict=True)
        method.conclude(target.split(sizes), pairs)
        for weights, x_hat in expected:
            assert weights.count == len(x_hat)
            torch.testing.assert_close(weights.mean, x_hat.mean(dim=0), rtol=1e-5, atol=1e-6)
            variance = x_hat.var(dim=0, correction=0).mean()
            torch.testing.assert_close(weights.variance, variance, rtol=1e-4, atol=0)


def test_concluding_forgets_nothing_of_a_large_target(monkeypatch: pytest.MonkeyPatch):
    method, width = small_paper().eval(), Recipe().bottleneck
    monkeypatch.setattr(method, "inverse_counterfactuals", lambda images: images[None])
    monkeypatch.setattr(method, "features", lambda images: images)
    method.conclude([torch.zeros(1, width).expand(12_000, width), torch.ones(1, width).expand(12_000, width)], ())
    torch.testing.assert_close(method.head.target.mean, torch.full((width,), 0.5, dtype=torch.float64))
    assert method.head.target.count == 24_000


def test_the_metrics_have_the_heads_diagnosis():
    method = small_paper()
    assert method.diagnostics() == method.head.diagnostics()
    assert set(method.diagnostics()) >= {"head/norm", "head/smallest", "head/lost"}
    assert method.singular_values() == {"W3": method.head.singular_values()}
    assert len(method.head.singular_values()) == method.head.config.vae.latent
