"""A small method of stage 2 with counterfactuals, and a batch for it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tcm.data.batch import Batch, Counterfactuals
from tcm.methods.method import Problem
from tcm.methods.tcm.causal_head import HeadConfig
from tcm.methods.tcm.tcm import TCM, Preset, TCMConfig, preset_tcm
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig
from tcm.nn.vae import VAEConfig

K, COUNT, CLASSES = 3, 4, 5
HEAD_TERMS = {"label", "adjusted", "proxy", "vae"}
every_preset = pytest.mark.parametrize("preset", ["default", "paper", "release"])


@torch.no_grad()
def small(config: TCMConfig | None = None, **settings) -> TCM:
    """A method with weights so large that different images are said to be different."""
    torch.manual_seed(0)
    inverse = FrozenGenerators(GeneratorConfig(4, 1, 1, kernel=3).build() for _ in range(K))
    problem = Problem(CLASSES, BackboneConfig("small").build(), inverse)
    method = replace(config or TCMConfig(), **settings).build(problem)
    for name, parameter in method.named_parameters():
        if name.startswith(("inverse.", "bottleneck.", "classifier.")) and parameter.ndim > 1:
            parameter.mul_(10)
    return method


def small_preset(preset: Preset, **settings) -> TCM:
    return small(preset_tcm(preset, small=True), **settings)


def small_head(**settings) -> HeadConfig:
    return HeadConfig(weight=1.0, vae=VAEConfig(latent=4, encoder=(16,), decoder=(16,)), **settings)


def random_batch() -> Batch:
    images = torch.rand(2 * K + 2, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    made = Counterfactuals(images[2 : 2 + K], images[2 + K :])
    return Batch(images[0], torch.arange(COUNT), images[1], made)


def losses(method: TCM, progress: float = 0.5) -> dict[str, Tensor]:
    torch.manual_seed(3)
    return method.train().losses(random_batch(), progress)


def without_mechanisms(method: TCM) -> TCM:
    """The method, which from now on fails where it asks its inverse mechanisms."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the inverse mechanisms are asked")

    assert method.inverse is not None
    method.inverse.register_forward_pre_hook(refuse)
    return method
