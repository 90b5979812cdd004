"""The settings of TCM's forms, and in what they differ."""

from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest
from support.small_tcm import every_form

from tcm.methods import METHODS
from tcm.methods.method import Recipe
from tcm.methods.tcm.control import ControlConfig
from tcm.methods.tcm.paper import PaperConfig
from tcm.methods.tcm.tcm import TCMConfig
from tcm.nn.vae import VAEConfig


def differences(one: Any, other: Any, prefix: str = "") -> dict[str, Any]:
    """The fields of `one`, nested ones by their path, in which `other` differs."""
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(one)):
        ours, theirs = getattr(one, name), getattr(other, name)
        if is_dataclass(ours):
            found |= differences(ours, theirs, f"{prefix}{name}.")
        elif ours != theirs:
            found[prefix + name] = ours
    return found


def test_the_default_and_its_control_have_the_same_settings():
    assert differences(ControlConfig(), TCMConfig()) == {}
    assert differences(TCMConfig.for_images(small=True), TCMConfig()) == {"recipe.bottleneck": 256, "rounds": 1}


def test_only_the_control_needs_no_mechanisms():
    forms = {name for name, config in METHODS.items() if name.startswith("tcm")}
    assert {name for name in forms if not METHODS[name].uses_counterfactuals} == {"tcm-control"}


def test_the_papers_rates_are_those_of_the_authors_code():
    paper = PaperConfig()
    assert paper.recipe == Recipe(lr=3e-3, pretrained_lr=0.1, momentum=0.9, weight_decay=1e-3)
    assert (paper.head.vae_lr, paper.head.weighting, paper.head.ridge) == (1e-5, "gaussian", 0.0)
    assert (paper.head.vae, paper.hidden, paper.alpha) == (VAEConfig(100, (1200, 600), (600,), dropout=0.0), 1024, 1.0)
    assert paper.input == "backbone"


def test_for_the_small_network_the_papers_sizes_and_rates_change():
    assert differences(PaperConfig.for_images(small=True), PaperConfig()) == {
        "recipe.lr": Recipe().lr,
        "input": "bottleneck",
        "head.vae.latent": 32,
        "head.vae.encoder": (128,),
        "head.vae.decoder": (128,),
        "head.vae_lr": 1e-3,
    }


@every_form
def test_a_form_is_a_value(form: str):
    found = METHODS[form].for_images(small=False)
    assert found == METHODS[form]()
    assert hash(found) == hash(METHODS[form]())
    with pytest.raises(FrozenInstanceError):
        found.recipe = Recipe()  # pyright: ignore[reportAttributeAccessIssue]
