"""Small methods of stage 2 with counterfactuals, and a batch for them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tcm.data.batch import Batch, Counterfactuals, StrongViews
from tcm.methods import METHODS
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.methods.tcm.paper import PaperTCM
from tcm.methods.tcm.tcm import TCM
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig

K, COUNT, CLASSES = 3, 4, 5
HEAD_TERMS = {"label", "adjusted", "proxy", "vae"}
every_form = pytest.mark.parametrize("form", ["tcm", "tcm-paper", "tcm-release"])
paper_forms = pytest.mark.parametrize("form", ["tcm-paper", "tcm-release"])


@torch.no_grad()
def built(config: MethodConfig) -> Method:
    """A method with weights so large that its predictions differ from image to image."""
    torch.manual_seed(0)
    inverse = None
    if config.runs_inverse:
        inverse = FrozenGenerators(GeneratorConfig(4, 1, 1, kernel=3).build() for _ in range(K))
    method = config.build(Problem(CLASSES, BackboneConfig("small").build(), inverse))
    for name, parameter in method.named_parameters():
        if name.startswith(("inverse.", "bottleneck.", "classifier.")) and parameter.ndim > 1:
            parameter.mul_(10)
    return method


def small(form: str = "tcm", **settings) -> Method:
    """A form of TCM by its name, with some settings changed."""
    return built(replace(METHODS[form].for_images(small=True), **settings))


def small_tcm(**settings) -> TCM:
    method = small("tcm", **settings)
    assert isinstance(method, TCM)
    return method


def small_paper(**settings) -> PaperTCM:
    method = small("tcm-paper", **settings)
    assert isinstance(method, PaperTCM)
    return method


def random_batch() -> Batch:
    images = torch.rand(2 * K + 4, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    made = Counterfactuals(images[2 : 2 + K], images[2 + K : 2 + 2 * K])
    strong = StrongViews(images[-2], images[-1])
    return Batch(images[0], torch.arange(COUNT), images[1], made, strong, torch.arange(COUNT))


def losses(method: Method, progress: float = 0.5) -> dict[str, Tensor]:
    torch.manual_seed(3)
    return method.train().losses(random_batch(), progress)


def without_mechanisms(method: Method) -> Method:
    """The method, which from now on fails where it runs its inverse mechanisms."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the inverse mechanisms are asked")

    assert method.inverse is not None
    method.inverse.register_forward_pre_hook(refuse)
    return method
