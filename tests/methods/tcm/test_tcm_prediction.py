"""Stage 2 with counterfactuals: what a prediction is made of, and what is left to do before one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.small_tcm import (
    CLASSES,
    COUNT,
    K,
    losses,
    random_batch,
    small,
    small_head,
    small_preset,
    without_mechanisms,
)
from torch import Tensor

from tcm.classifier.evaluate import predict_task
from tcm.methods.method import Recipe
from tcm.methods.tcm.tcm import TCM, Preset, averaged
from tcm.training.run_config import make_fabric


def variants(method: TCM, images: Tensor) -> dict[str, Tensor]:
    answer = method.answer(images)
    return {"": answer.logits, **answer.variants}


@pytest.mark.parametrize(
    ("prediction", "names"),
    [
        ("single", [""]),
        ("average", ["", "fast", *(f"mechanism {number} alone" for number in range(1, K + 1))]),
        ("adjusted", ["", "fast", "f_y alone", "uniform weights", "gaussian weights"]),
    ],
)
def test_variants_are_the_prediction_and_what_it_is_compared_with(prediction, names: list[str]):
    method, images = small(prediction=prediction, head=small_head()), random_batch().target
    losses(method)  # makes the moments of the proxies known
    assert method.head is not None
    method.head.target.variance.mul_(0.01)  # a density so narrow that its weights are far from uniform
    read = variants(method.eval(), images)
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
    read = variants(method.eval(), images)["fast"]
    torch.testing.assert_close(without_mechanisms(method).predict_fast(images), read)
    with pytest.raises(AssertionError, match="mechanisms are asked"):
        method.predict(images)


def test_each_counterfactual_is_read_alone_too():
    method, images = small(prediction="average").eval(), random_batch().target
    read = variants(method, images)
    for number, made in enumerate(method.counterfactuals_of(images), start=1):
        torch.testing.assert_close(read[f"mechanism {number} alone"], method.predict_fast(made))
    views = torch.stack([read[name] for name in read if name])
    torch.testing.assert_close(averaged(views), read[""])
    assert list(variants(small(mixing="none").eval(), images)) == ["", "fast"]  # the control has none


@pytest.mark.parametrize("prediction", ["average", "adjusted"])
def test_source_images_are_predicted_without_mechanisms_and_target_images_with(prediction):
    method = small(prediction=prediction, head=small_head()).eval()
    images = torch.randint(256, (2, COUNT, 32, 32, 3), dtype=torch.uint8)
    task: Any = SimpleNamespace(source=SimpleNamespace(images=images[0]), target=SimpleNamespace(images=images[1]))
    found = predict_task(make_fabric("cpu", "fp32"), method, task, 32)
    seen = images.permute(0, 1, 4, 2, 3) / 255
    answers = method.answer_fast(seen[0]), method.answer(seen[1])
    for ours, its in zip(found, answers, strict=True):
        torch.testing.assert_close(ours.probabilities, its.logits.softmax(dim=1).detach())
        torch.testing.assert_close(ours.features, its.features.detach())
        assert ours.variants.keys() == its.variants.keys()
    assert "fast" in found.target.variants
    assert not found.source.variants


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
    alone = [f"mechanism {number} alone" for number in range(1, K + 1)]
    assert list(variants(method, images)) == ["", "fast", *alone]  # all together are no mechanism


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
    x, *x_hat = (method.head_features(view) for view in (images, *method.inverse_counterfactuals(images)))
    read = variants(method, images)
    torch.testing.assert_close(read[""], head.solved().predict(x, torch.stack(x_hat)))
    torch.testing.assert_close(read["fast"], head.solved().predict_with_mean(x))
    torch.testing.assert_close(read["f_y alone"], head.predict_alone(x))
    torch.testing.assert_close(read["uniform weights"], head.solved().predict(x, torch.stack(x_hat), "uniform"))
    torch.testing.assert_close(read["gaussian weights"], head.solved().predict(x, torch.stack(x_hat), "gaussian"))


def test_features_are_the_bottlenecks_or_the_backbones():
    images = random_batch().target
    narrow, bare = (small(features=features).eval() for features in ("bottleneck", "backbone"))
    assert torch.equal(narrow.head_features(images), narrow.bottleneck(narrow.backbone(images)))
    assert torch.equal(bare.head_features(images), bare.backbone(images))
    for method in (narrow, bare):
        assert torch.equal(method.classified(method.head_features(images)), method.classifier(method.features(images)))


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
    torch.testing.assert_close(method.eval().answer(images).features, method.head_features(images))
    torch.testing.assert_close(method.features(images), method.head_features(images))


@torch.no_grad()
@pytest.mark.parametrize("preset", ["paper", "release"])
def test_concluding_makes_both_domains_moments_exact_in_whatever_batches(preset: Preset):
    method, batch = small_preset(preset), random_batch()
    losses(method)  # leaves moments that are to be forgotten
    assert batch.counterfactuals is not None
    target, source, made, head = batch.target, batch.source, batch.counterfactuals.source, method.eval().head
    assert head is not None
    proxies = source if preset == "release" else made.flatten(0, 1)
    expected = (
        (head.target, method.head_features(method.inverse_counterfactuals(target).flatten(0, 1)).double()),
        (head.source, method.head_features(proxies).double()),
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
    method, width = small(head=small_head()).eval(), Recipe().bottleneck
    monkeypatch.setattr(method, "inverse_counterfactuals", lambda images: images[None])
    monkeypatch.setattr(method, "head_features", lambda images: images)
    method.conclude([torch.zeros(1, width).expand(12_000, width), torch.ones(1, width).expand(12_000, width)], ())
    assert method.head is not None
    torch.testing.assert_close(method.head.target.mean, torch.full((width,), 0.5, dtype=torch.float64))
    assert method.head.target.count == 24_000


def test_without_a_head_there_is_nothing_to_conclude_and_nothing_to_tell():
    method = without_mechanisms(small().eval())
    state = {name: value.clone() for name, value in method.state_dict().items()}
    method.conclude([random_batch().target], ())
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    assert method.diagnostics() == {}


def test_the_metrics_tell_of_the_head():
    method = small_preset("paper")
    assert method.head is not None
    assert method.diagnostics() == method.head.diagnostics()
    assert set(method.diagnostics()) >= {"head/norm", "head/smallest", "head/lost"}
    assert method.singular_values() == {"W3": method.head.singular_values()}
    assert len(method.head.singular_values()) == method.head.config.vae.latent


def test_averaging_classifies_backbone_features_view_by_view():
    method, images = small(features="backbone").eval(), random_batch().target
    views = [images, *method.inverse_counterfactuals(images)]
    mean = torch.stack([method.classified(method.head_features(view)).softmax(dim=1) for view in views]).mean(dim=0)
    torch.testing.assert_close(method.predict(images).exp(), mean)
