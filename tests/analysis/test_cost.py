"""Multiply-adds and parameters that can be counted by hand."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tcm.analysis.cost import Cost, Costs, count_costs, multiply_adds, parameters
from tcm.cli.app import main
from tcm.errors import InputError
from tcm.nn.backbone import BackboneConfig

CLASSES, K = 65, 4
DISCRIMINATOR = CLASSES * 1024 + 1024 * 1024 + 1024  # weights of one on class probabilities
F_XHAT = (100 + 2048) * 2048
VAE = 2048 * 1200 + 1200 * 600 + 600 * 200 + 100 * 600 + 600 * 2048


@pytest.fixture(scope="module")
def found() -> Costs:
    return count_costs(BackboneConfig("resnet50"), CLASSES, K)


def row(found: Costs, name: str) -> Cost:
    (one,) = [cost for cost in found.rows if cost.name == name]
    return one


def test_a_multiply_add_counts_once():
    layer = nn.Linear(30, 50)
    assert multiply_adds(lambda: layer(torch.zeros(7, 30))) == pytest.approx(7 * 30 * 50 / 1e9)
    assert parameters(layer) == pytest.approx((30 * 50 + 50) / 1e6)


def test_the_backbone_is_the_known_network(found: Costs):
    assert found.backbone.parameters == pytest.approx(23.508032)
    assert 32 * found.backbone.multiply_adds == pytest.approx(133, rel=0.02)  # the paper's


def test_source_only_adds_nothing(found: Costs):
    assert row(found, "erm").modules == (0, 0)
    assert (row(found, "erm").images, row(found, "erm").prediction) == (32, found.backbone.multiply_adds)


def test_dann_costs_what_the_paper_says(found: Costs):
    dann = row(found, "dann")
    assert dann.modules.multiply_adds == pytest.approx(64 * (256 * 1024 + 1024 * 1024 + 1024) / 1e9)
    assert round(dann.modules.multiply_adds, 3) == 0.084
    assert round(dann.modules.parameters, 1) == 1.3


def test_the_baseline_costs_what_the_paper_says(found: Costs):
    baseline = row(found, "baseline")
    assert baseline.modules.multiply_adds == pytest.approx(64 * DISCRIMINATOR / 1e9)
    assert baseline.modules.multiply_adds == pytest.approx(0.072, rel=0.01)
    assert baseline.modules.parameters == pytest.approx((DISCRIMINATOR + 2 * 1024 + 1) / 1e6)
    assert round(baseline.modules.parameters, 1) == 1.1


def test_gvb_has_a_discriminator_and_two_bridges(found: Costs):
    gvb, classifier = row(found, "gvb"), 2048 * CLASSES + CLASSES
    bridges = classifier + 1024 + 1  # of the classifier, which sees the features, and of the discriminator
    assert gvb.modules.parameters == pytest.approx((DISCRIMINATOR + 2 * 1024 + 1 + bridges) / 1e6)
    assert gvb.modules.multiply_adds == pytest.approx(64 * (DISCRIMINATOR + 2048 * CLASSES + 1024) / 1e9)
    assert round(gvb.modules.parameters + classifier / 1e6, 1) == 1.4  # the paper's


def test_the_release_has_the_paper_s_parts_and_a_second_direction(found: Costs):
    assert round((DISCRIMINATOR + VAE + F_XHAT) / 1e6, 1) == 10.1  # the paper's
    assert pytest.approx(0.364, rel=0.01) == 64 * (DISCRIMINATOR + VAE) / 1e9
    linear = 2 * 2048 * CLASSES + (100 + 2048) * CLASSES  # two plain classifiers and f_y
    biases = 2 * (2 * 1024 + 1) + 1200 + 600 + 200 + 600 + 2048 + 2048 + 3 * CLASSES
    release = row(found, "tcm-release")
    expected = 2 * DISCRIMINATOR + VAE + F_XHAT + linear + biases
    assert release.modules.parameters == pytest.approx(expected / 1e6)
    assert release.modules.multiply_adds > (64 * (2 * DISCRIMINATOR + VAE) + 32 * F_XHAT) / 1e9


def test_the_paper_s_numbers_are_shown_for_its_own_methods(found: Costs):
    beside = [cost.name for cost in found.rows if cost.paper]
    assert beside == ["dann", "cdan", "gvb", "baseline", "tcm-paper", "tcm-release"]


def test_images_of_a_step_and_of_a_prediction(found: Costs):
    # Source and target with k counterfactuals each; with a strong view each; with one counterfactual each; alone.
    names = ["tcm-paper", "tcm", "tcm-release", "baseline"]
    assert [row(found, name).images for name in names] == [64 * (1 + K), 64 * 2, 64 * 2, 64]
    assert row(found, "tcm").prediction == found.backbone.multiply_adds
    mechanisms = row(found, "tcm-paper").prediction - (1 + K) * found.backbone.multiply_adds
    assert mechanisms / K == pytest.approx(12.05, rel=0.01)  # half of the 24.1 GFLOP of a generator's forward pass
    assert row(found, "baseline").prediction == found.backbone.multiply_adds
    assert row(found, "tcm-release").prediction == found.backbone.multiply_adds  # E[x_hat] needs no counterfactuals
    assert row(found, "tcm-control").prediction == found.backbone.multiply_adds  # the image alone


def test_the_command_prints_ours_beside_the_paper_s(capsys: pytest.CaptureFixture[str]):
    assert main(["cost", "--backbone.name", "small", "--classes", "10", "--k", "2"]) == 0
    said = capsys.readouterr().out
    assert "tcm-release" in said
    assert "10.1" in said
    assert "A multiply-add counts once" in said


def test_impossible_numbers_are_errors():
    small = BackboneConfig("small")
    with pytest.raises(InputError, match="`classes` is 1; give 2 or more"):
        count_costs(small, 1, 2)
    with pytest.raises(InputError, match="`k` is 0; give 1 or more"):
        count_costs(small, 2, 0)
    with pytest.raises(InputError, match=r'"resnet5".* timm'):
        count_costs(replace(small, name="resnet5"), 2, 2)
