"""What the presets of tcm train tcm set."""

from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest
from support.small_tcm import every_preset

from tcm.methods.method import Recipe
from tcm.methods.tcm.tcm import PRESETS, Preset, TCMConfig, preset_tcm
from tcm.nn.vae import VAEConfig


def differences(one: Any, other: Any, prefix: str = "") -> dict[str, Any]:
    """The fields of `one`, nested ones by their path, that `other` has otherwise."""
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(one)):
        ours, theirs = getattr(one, name), getattr(other, name)
        if is_dataclass(ours):
            found |= differences(ours, theirs, f"{prefix}{name}.")
        elif ours != theirs:
            found[prefix + name] = ours
    return found


def test_the_default_preset_is_the_default():
    assert preset_tcm("default", small=False) == preset_tcm("default", small=True) == TCMConfig()


def test_the_paper_is_its_causal_head_and_proxy_loss_on_backbone_features():
    assert differences(preset_tcm("paper", small=False), TCMConfig()) == {
        "recipe.lr": 3e-3,
        "features": "backbone",
        "source_views": None,
        "target_views": None,
        "plain": 0.0,
        "counterfactual": 0.0,
        "agreement": 0.0,
        "alignment.kind": "proxies",
        "head.weight": 1.0,
        "prediction": "adjusted",
    }


def test_the_papers_rates_are_those_of_the_authors_code():
    paper = preset_tcm("paper", small=False)
    assert paper.recipe == Recipe(lr=3e-3, pretrained_lr=0.1, momentum=0.9, weight_decay=1e-3)
    assert (paper.head.vae_lr, paper.head.weighting, paper.head.ridge) == (1e-5, "gaussian", 0.0)
    assert (paper.head.vae, paper.alignment.hidden) == (VAEConfig(100, (1200, 600), (600,), dropout=0.0), 1024)


def test_the_release_is_the_paper_but_for_what_the_authors_scripts_do():
    assert differences(preset_tcm("release", small=False), preset_tcm("paper", small=False)) == {
        "source_views": 1,
        "target_views": 1,
        "alignment.kind": "predictions",
        "alignment.dropout": 0.5,
        "head.vae.dropout": 0.3,
        "head.weighting": "mean",
        "head.swapped": True,
    }


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_for_the_small_network_a_preset_changes_sizes_and_rates_only(preset: Preset):
    assert differences(preset_tcm(preset, small=True), preset_tcm(preset, small=False)) == {
        "recipe.lr": Recipe().lr,
        "features": "bottleneck",
        "head.vae.latent": 32,
        "head.vae.encoder": (128,),
        "head.vae.decoder": (128,),
        "head.vae_lr": 1e-3,
    }


@every_preset
def test_a_preset_is_a_value(preset: Preset):
    found = preset_tcm(preset, small=False)
    assert found == PRESETS[preset]
    assert hash(found) == hash(PRESETS[preset])
    with pytest.raises(FrozenInstanceError):
        found.plain = 3.0  # pyright: ignore[reportAttributeAccessIssue]
