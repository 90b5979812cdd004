"""The paper's Baseline (Section 4.2): what it learns from, what it aligns, what it predicts by."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch, Counterfactuals
from tcm.methods.baseline import Baseline, BaselineConfig
from tcm.methods.method import Problem, Recipe
from tcm.nn.backbone import BackboneConfig
from tcm.nn.schedules import ramp_up

COUNT, CLASSES = 4, 5


def built(classes: int = CLASSES, **settings: Any) -> Baseline:
    torch.manual_seed(0)
    method = BaselineConfig(**settings).build(Problem(classes, BackboneConfig("small").build()))
    assert isinstance(method, Baseline)
    return method


def random_batch() -> Batch:
    images = torch.rand(4, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return Batch(images[0], torch.arange(COUNT), images[1], Counterfactuals(images[2:3], images[3:4]))


def transported(batch: Batch) -> Tensor:
    assert batch.counterfactuals is not None
    return batch.counterfactuals.source[0]


def test_it_is_the_cross_entropy_on_transported_source_images_and_the_alignment_of_predictions():
    method, batch = built(dropout=0.0, alpha=0.3).train(), random_batch()
    found = method.losses(batch, 0.5)
    on_transported, on_target = (
        method.classifier(method.backbone(images)) for images in (transported(batch), batch.target)
    )
    assert found.keys() == {"classification", "alignment"}
    torch.testing.assert_close(found["classification"], F.cross_entropy(on_transported, batch.labels))
    expected = method.alignment(on_transported, on_target, ramp_up(0.5))
    torch.testing.assert_close(found["alignment"], 0.3 * expected)


@pytest.mark.parametrize(("separate", "passes"), [(True, [COUNT, COUNT]), (False, [2 * COUNT])])
def test_batch_normalisation_sees_one_kind_of_image_at_a_time_or_both(separate: bool, passes: list[int]):
    method, batch = built(separate_passes=separate).train(), random_batch()
    seen: list[Tensor] = []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    method.losses(batch, 0.5)
    assert [*map(len, seen)] == passes
    assert torch.equal(torch.cat(seen), torch.cat([transported(batch), batch.target]))


def test_its_only_addition_has_the_papers_parameters():
    method = built(classes=65)
    assert {name.split(".")[0] for name, _ in method.named_parameters()} == {
        "backbone",
        "classifier",
        "alignment",
    }
    extra = sum(parameter.numel() for parameter in method.alignment.parameters())
    assert extra == 65 * 1024 + 1024 * 1024 + 1024 + 2 * 1024 + 1
    assert round(extra / 1e6, 1) == 1.1


def test_the_learned_classifier_predicts_directly():
    method, images = built().eval(), random_batch().target
    torch.testing.assert_close(method.predict(images), method.classifier(method.backbone(images)))


def test_its_settings_are_the_authors_and_on_the_small_network_those_of_the_other_methods():
    config = BaselineConfig()
    assert BaselineConfig.for_images(small=False) == config
    assert (config.recipe, config.separate_passes) == (Recipe(lr=3e-3), True)
    assert BaselineConfig.for_images(small=True) == replace(config, recipe=Recipe(), separate_passes=False)
