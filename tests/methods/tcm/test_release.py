"""TCM as in the authors' script for Office-Home: what its terms are, and whom they train."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.small_tcm import COUNT, HEAD_TERMS, K, losses, random_batch, small, without_mechanisms
from torch import Tensor, nn

from tcm.classifier.train_config import TrainConfig
from tcm.data.batch import Batch, Counterfactuals
from tcm.data.task import DataConfig
from tcm.methods import METHODS
from tcm.methods.method import Problem, Recipe
from tcm.methods.tcm.causal_head import CausalHead, HeadConfig
from tcm.methods.tcm.release import ReleaseConfig, ReleaseTCM
from tcm.nn.backbone import Backbone
from tcm.nn.vae import VAEConfig

PLAIN_TERMS = {"source", "transported", "alignment"}


def small_release(**settings: Any) -> ReleaseTCM:
    method = small("tcm-release", **{"separate_passes": True, **settings})
    assert isinstance(method, ReleaseTCM)
    return method.train()


def one_mechanism() -> Batch:
    """A batch in which each image has one counterfactual, so that none is drawn."""
    batch = random_batch()
    assert batch.counterfactuals is not None
    return batch._replace(counterfactuals=Counterfactuals(*(made[:1] for made in batch.counterfactuals)))


def features(method: ReleaseTCM, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The features of x_s, x_t, M(x_s) and M^-1(x_t), each normalised on its own."""
    assert batch.counterfactuals is not None
    (x_st,), (x_ts,) = batch.counterfactuals
    x_s, x_t, x_st, x_ts = (method.backbone(images) for images in (batch.source, batch.target, x_st, x_ts))
    return x_s, x_t, x_st, x_ts


def reached(method: ReleaseTCM, loss: Tensor) -> set[str]:
    """The parts of the method that a loss trains."""
    method.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)
    trained = [name for name, part in method.named_parameters() if part.grad is not None and part.grad.any()]
    return {".".join(name.split(".")[: 3 if name.startswith("head.") else 1]) for name in trained}


def test_the_plain_classifiers_learn_labels_on_source_images_and_on_their_counterfactuals():
    method, batch = small_release(), one_mechanism()
    found = method.losses(batch, 0.5)
    x_s, _, x_st, _ = features(method, batch)
    torch.testing.assert_close(found["source"], F.cross_entropy(method.source_classifier(x_s), batch.labels))
    torch.testing.assert_close(found["transported"], F.cross_entropy(method.target_classifier(x_st), batch.labels))
    assert not torch.equal(method.source_classifier.weight, method.target_classifier.weight)


def test_the_predictions_of_the_plain_classifiers_are_aligned_in_both_directions_and_averaged():
    method, batch = small_release(dropout=0.0, alpha=0.8), one_mechanism()
    found = method.losses(batch, 0.2)["alignment"]
    x_s, x_t, x_st, x_ts = features(method, batch)
    on_source, on_target = method.source_classifier, method.target_classifier
    factor = 2 / (1 + torch.exp(torch.tensor(-10 * 0.2 * 15_000 / 10_000)).item()) - 1
    to_target = method.target_alignment(on_target(x_st), on_target(x_t), factor)
    to_source = method.source_alignment(on_source(x_ts), on_source(x_s), factor)
    torch.testing.assert_close(found, 0.8 * (to_target + to_source) / 2)
    discriminators = [method.source_alignment, method.target_alignment]
    first, second = (next(discriminator.parameters()) for discriminator in discriminators)
    assert not torch.equal(first, second)
    # Both gradients that reach the backbone are reversed: the factor is that of the schedule.
    weight = next(method.backbone.parameters())
    (at,), (expected,) = (torch.autograd.grad(loss, weight) for loss in (found, 0.4 * (to_target + to_source)))
    torch.testing.assert_close(at, expected)
    assert at.any()


def test_the_terms_of_the_causal_head_by_hand():
    method, batch = small_release(vae=VAEConfig(latent=2, encoder=(8,), decoder=(8,))), one_mechanism()
    torch.manual_seed(3)
    found = method.losses(batch, 0.5)
    assert found.keys() == {*PLAIN_TERMS, *HEAD_TERMS}
    x_s, x_t, x, _ = (part.detach() for part in features(method, batch))
    head, heads = method.head, method.head.heads.matrices()
    torch.manual_seed(3)
    # The choices of mechanisms and the dropout in the discriminators come before the noise of the VAE.
    for _ in range(2):
        torch.randint(1, (1, COUNT))
    for _ in range(4):
        F.dropout(F.dropout(torch.ones(COUNT, 1024)))
    z, vae = [], []
    for part in (x, x_t):
        mean, log_variance = head.vae.encode(part)
        z.append(mean + (log_variance / 2).exp() * torch.rand_like(mean))
        restored = (head.vae.decode(z[-1]) - part).square().sum(dim=1)
        divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum(dim=1)
        vae.append((restored + divergence).mean() / 2)
    joint = torch.cat([z[0], x], dim=1)
    f_y, f_xhat = head.heads.to_label(joint), head.heads.to_proxy(joint)
    inverse = torch.linalg.pinv(heads.w3)
    proxy = x_s.mean(dim=0)
    h_y = x @ heads.w2.T + heads.b1 + (proxy - x @ heads.w4.T - heads.b2) @ inverse.T @ heads.w1.T
    torch.testing.assert_close(found["label"], F.cross_entropy(f_y, batch.labels))
    torch.testing.assert_close(found["proxy"], F.mse_loss(f_xhat, x_s))
    torch.testing.assert_close(found["adjusted"], F.cross_entropy(h_y, batch.labels), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["vae"], vae[0] + vae[1])


def test_only_the_plain_classifiers_their_alignment_and_the_adjusted_logits_train_the_backbone():
    method = small_release()
    assert {term: reached(method, loss) for term, loss in losses(method).items()} == {
        "source": {"backbone", "source_classifier"},
        "transported": {"backbone", "target_classifier"},
        "alignment": {
            "backbone",
            "source_classifier",
            "target_classifier",
            "source_alignment",
            "target_alignment",
        },
        "label": {"head.heads.to_label"},
        "adjusted": {"backbone"},
        "proxy": {"head.heads.to_proxy"},
        "vae": {"head.vae.encoder", "head.vae.decoder"},
    }


def test_the_mean_proxy_of_the_batch_has_a_gradient():
    method = small_release()
    x, x_hat, x_t, x_ts = torch.rand(4, COUNT, method.backbone.features).requires_grad_().unbind()
    found = method.head_losses(x, x_hat, x_t, x_ts, random_batch().labels)["adjusted"]
    (gradient,) = torch.autograd.grad(found, x_hat)
    assert gradient.any()
    torch.testing.assert_close(gradient, gradient[:1].expand_as(gradient))  # each image has an equal part in the mean


def test_batch_normalisation_sees_one_kind_of_image_at_a_time():
    method, batch = small_release(), one_mechanism()
    norm = next(module for module in method.backbone.modules() if isinstance(module, nn.BatchNorm2d))
    images: list[Tensor] = []
    means: list[Tensor] = []
    method.backbone.register_forward_pre_hook(lambda _, args: images.append(args[0]))
    norm.register_forward_pre_hook(lambda _, args: means.append(args[0].mean(dim=(0, 2, 3))))
    expected = torch.zeros(norm.num_features)
    method.losses(batch, 0.5)
    assert batch.counterfactuals is not None
    kinds = (batch.source, batch.target, batch.counterfactuals.source[0], batch.counterfactuals.target[0])
    assert all(torch.equal(seen, kind) for seen, kind in zip(images, kinds, strict=True))
    # The running mean takes in the mean of each kind in turn, and so differs from that of one large batch.
    for mean in means:
        expected = 0.9 * expected + 0.1 * mean.detach()
    torch.testing.assert_close(norm.running_mean, expected)


def test_all_kinds_can_go_through_the_backbone_together_as_those_of_the_digits_do():
    assert not ReleaseConfig.for_images(small=True).separate_passes
    method, batch = small_release(separate_passes=False), one_mechanism()
    seen: list[int] = []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    found = method.losses(batch, 0.5)
    assert seen == [4 * COUNT]
    assert batch.counterfactuals is not None
    (x_st,), (x_ts,) = batch.counterfactuals
    x_s, _, x_st, _ = method.backbone(torch.cat([batch.source, batch.target, x_st, x_ts])).split(COUNT)
    torch.testing.assert_close(found["source"], F.cross_entropy(method.source_classifier(x_s), batch.labels))
    torch.testing.assert_close(found["transported"], F.cross_entropy(method.target_classifier(x_st), batch.labels))


def test_each_image_has_one_random_counterfactual():
    method, batch = small_release(), random_batch()
    seen: list[Tensor] = []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    for _ in range(20):
        method.losses(batch, 0.5)
    assert batch.counterfactuals is not None
    for kind, made in ((2, batch.counterfactuals.source), (3, batch.counterfactuals.target)):
        chosen = torch.stack([(image == made).flatten(2).all(dim=2) for image in seen[kind::4]])
        assert (chosen.sum(dim=1) == 1).all()  # a counterfactual of the image itself
        assert chosen.flatten(0, 1).any(dim=0).all() or K == 1  # by every mechanism at some time


def test_h_y_with_the_mean_proxy_of_the_target_predicts_in_one_pass():
    method, batch = small_release(), random_batch()
    losses(method)
    images = batch.target
    target, source = iter([images[:1], images[1:]]), iter(())
    method.eval().conclude(target, source)
    x, head = method.backbone(images), method.head
    x_hat = method.backbone(method.inverse_counterfactuals(images).flatten(0, 1)).mean(dim=0)
    seen: list[int] = []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    answer = without_mechanisms(method).answer(images)
    assert seen == [COUNT]
    w1, w2, b1, w3, w4, b2 = head.heads.matrices()
    expected = x @ w2.T + b1 + (x_hat - x @ w4.T - b2) @ torch.linalg.pinv(w3).T @ w1.T
    torch.testing.assert_close(answer.logits, expected, rtol=1e-3, atol=1e-4)
    assert torch.equal(answer.features, x)
    assert answer.variants.keys() == {"f_y alone", "plain classifier"}
    torch.testing.assert_close(answer.variants["f_y alone"], head.predict_alone(x))
    torch.testing.assert_close(answer.variants["plain classifier"], method.target_classifier(x))
    fast = method.answer_fast(images)
    assert torch.equal(fast.logits, answer.logits)
    assert not fast.variants


def test_while_it_trains_the_mean_proxy_is_that_of_the_newest_counterfactuals():
    method, batch = small_release(), one_mechanism()
    method.losses(batch, 0.5)
    *_, x_ts = features(method, batch)
    torch.testing.assert_close(method.head.target.mean, x_ts.detach().double().mean(dim=0), rtol=1e-5, atol=1e-6)


def test_its_settings_are_those_of_the_script():
    config = ReleaseConfig()
    assert config.recipe == Recipe(lr=3e-3, pretrained_lr=0.1, momentum=0.9, weight_decay=1e-3)
    assert (config.vae, config.vae_lr) == (VAEConfig(100, (1200, 600), (600,), dropout=0.3), 1e-5)
    assert (config.alpha, config.hidden, config.dropout, config.separate_passes) == (1.0, 1024, 0.5, True)
    few = ReleaseConfig.for_images(small=True)
    assert (few.recipe, few.vae.latent) == (Recipe(), 4)
    same = {name: getattr(config, name) for name in ("recipe", "vae", "vae_lr", "separate_passes")}
    assert replace(few, **same) == config


def test_the_usual_number_of_steps_depends_on_method_and_data(tmp_path: Any):
    photographs = DataConfig(source_dir=tmp_path, target_dir=tmp_path)
    for data, name, expected in (
        (photographs, "tcm-release", 15_000),
        (photographs, "tcm", 4_000),
        (photographs, "tcm-control", 4_000),
        (photographs, "dann", 10_000),
        (DataConfig(benchmark="digits"), "tcm-release", 600),
    ):
        assert TrainConfig(method=METHODS[name](), data=data).resolved().steps == expected


def test_the_rate_at_15000_steps_is_that_of_the_script():
    method = small_release()
    for step in (0, 100, 5_000, 15_000):
        assert method.lr_factor(step / 15_000) == pytest.approx((1 + 0.001 * step) ** -0.75)


def test_its_parts_have_the_papers_parameters():
    """The paper's 10.1 M are one discriminator, the VAE and f_xhat; the script has a second direction, 1.1 M more."""
    network = nn.Module()
    network.num_features = 2048  # pyright: ignore[reportArgumentType]
    backbone = Backbone(network, (0.0,) * 3, (1.0,) * 3, pretrained=True)
    method = ReleaseTCM(Problem(65, backbone), ReleaseConfig())

    def millions(*parts: nn.Module) -> float:
        return sum(parameter.numel() for part in parts for parameter in part.parameters()) / 1e6

    discriminators = millions(method.source_alignment), millions(method.target_alignment)
    assert discriminators == pytest.approx((1.119, 1.119), abs=1e-3)
    causal = millions(method.head.vae, method.head.heads.to_proxy)
    assert discriminators[0] + causal == pytest.approx(10.1, abs=0.02)
    classifiers = millions(method.source_classifier, method.target_classifier, method.head.heads.to_label)
    assert millions(method) == pytest.approx(sum(discriminators) + causal + classifiers)
    assert isinstance(method.head, CausalHead)
    assert method.head.config == HeadConfig(ReleaseConfig().vae, weighting="mean")
