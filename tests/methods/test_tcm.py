"""Stage 2 with counterfactuals: what the terms are, and that predictions are averaged."""

import torch

from tcm.learner import Batch, Counterfactuals
from tcm.losses import agreement
from tcm.methods.method import Problem
from tcm.methods.tcm import TCMConfig
from tcm.methods.views import drawn
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig

K, COUNT = 3, 4


def small(**settings):
    torch.manual_seed(0)
    inverse = FrozenGenerators(GeneratorConfig(4, 1, 1, kernel=3).build() for _ in range(K))
    return TCMConfig(**settings).build(Problem(5, BackboneConfig("small").build(), inverse))


def random_batch() -> Batch:
    images = torch.rand(2 * K + 2, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    made = Counterfactuals(images[2 : 2 + K], images[2 + K :])
    return Batch(images[0], torch.arange(COUNT), images[1], made)


def test_one_of_each_takes_every_image_from_a_random_mechanism():
    made = torch.arange(K)[:, None].expand(K, 1000) + 10 * torch.arange(1000)
    (taken,) = drawn(made[0], made, 1, "one")
    assert torch.equal(taken // 10, torch.arange(1000))
    assert (taken % 10).unique().tolist() == [0, 1, 2]


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


def test_a_term_with_weight_0_is_0_and_early_agreement_is_off():
    batch = random_batch()
    off = small(agreement=0.0, alignment=0.0).train().losses(batch, 0.5)
    assert off["agreement"] == 0
    assert off["domain"] == 0
    assert small().train().losses(batch, 0.0)["agreement"] == 0


def test_the_prediction_is_the_mean_over_the_image_and_its_counterfactuals():
    method, images = small().eval(), random_batch().target
    views = [images, *method.inverse_counterfactuals(images)]
    mean = torch.stack([method.classifier(method.features(view)).softmax(dim=1) for view in views]).mean(dim=0)
    torch.testing.assert_close(method.predict(images).exp(), mean)
