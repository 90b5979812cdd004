"""The paper's Baseline (Section 4.2): what it learns from, what it aligns, what it predicts by."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tcm.data.batch import Batch, Counterfactuals
from tcm.errors import InputError
from tcm.methods.baseline import Baseline, BaselineConfig
from tcm.methods.method import Problem, Recipe
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig
from tcm.nn.losses import proxy_loss

COUNT, CLASSES = 4, 5


def built(k: int = 1) -> Baseline:
    torch.manual_seed(0)
    inverse = FrozenGenerators(GeneratorConfig(4, 1, 1, kernel=3).build() for _ in range(k))
    method = BaselineConfig().build(Problem(CLASSES, BackboneConfig("small").build(), inverse))
    assert isinstance(method, Baseline)
    return method


def random_batch() -> Batch:
    images = torch.rand(4, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return Batch(images[0], torch.arange(COUNT), images[1], Counterfactuals(images[2:3], images[3:4]))


def test_it_is_the_cross_entropy_on_transported_source_images_and_the_proxy_loss():
    method, batch = built().train(), random_batch()
    found = method.losses(batch, 0.5)
    assert batch.counterfactuals is not None
    images = [batch.source, *batch.counterfactuals.source, batch.target, *batch.counterfactuals.target]
    features = method.backbone(torch.cat(images))
    logits = method.classifier(method.bottleneck(features)).split(COUNT)
    x_s, x_st, x_t, x_ts = features.split(COUNT)
    assert found.keys() == {"classification", "alignment"}
    torch.testing.assert_close(found["classification"], F.cross_entropy(logits[1], batch.labels))
    judges = method.alignment
    expected = proxy_loss(judges.source(x_s), judges.target(x_st), judges.target(x_t), judges.source(x_ts))
    torch.testing.assert_close(found["alignment"], expected)


def test_the_learned_classifier_predicts_directly():
    method, images = built().eval(), random_batch().target

    def refuse(*_: Any) -> None:
        raise AssertionError("the inverse mechanism is asked")

    assert method.inverse is not None
    method.inverse.register_forward_pre_hook(refuse)
    expected = method.classifier(method.bottleneck(method.backbone(images)))
    torch.testing.assert_close(method.predict(images), expected)


@pytest.mark.parametrize("k", [2, 4])
def test_it_has_one_mechanism(k: int):
    expected = rf"^`mechanisms` has {k} mechanisms, but this method uses 1; name a run .*`k` 1$"
    with pytest.raises(InputError, match=expected):
        built(k)


def test_its_rates_are_the_papers_and_on_the_small_network_those_of_the_other_methods():
    assert BaselineConfig.for_images(small=False) == BaselineConfig()
    assert BaselineConfig().recipe == Recipe(lr=3e-3)
    assert BaselineConfig.for_images(small=True).recipe == Recipe()
