"""Stage 2: steps against one pass per view, and the cost of a prediction."""

from collections.abc import Callable

import torch
from lightning_fabric import Fabric
from timing import random_batch, seconds_a_call
from torch import Tensor

from tcm.data.batch import Counterfactuals
from tcm.mechanisms.train import bank_config
from tcm.methods import METHODS
from tcm.methods.method import Method, Problem
from tcm.methods.tcm.tcm import TCM, TCMConfig
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators
from tcm.training.device import make_fabric


class PassPerView(TCM):
    """A straightforward stage 2: one pass of the backbone for every view of a batch."""

    at_once = 32

    def features(self, images: Tensor) -> Tensor:
        """The features, view by view."""
        return torch.cat([super(PassPerView, self).features(part) for part in images.split(self.at_once)])


def stage2(quick: bool, forms: list[str]) -> None:
    """Steps of stage 2 against a pass per view in fp32, and prediction against the bare backbone."""
    k, batch, side, name = (4, 4, 32, "small") if quick else (4, 32, 224, "resnet50")
    plain = measured_update(PassPerView, "fp32", k, batch, side, name, compiled=False)
    ours = measured_update(TCM, "auto", k, batch, side, name, compiled=True)
    print(f"a pass per view, fp32: {1 / plain:.0f} images/s")
    print(f"one pass, bf16, compiled: {1 / ours:.0f} images/s, {plain / ours:.1f} times as many")
    for form in ("tcm", "tcm-paper"):
        report_prediction(form, k, 4 if quick else 64, side, name)


def problem(fabric: Fabric, k: int, side: int, name: str) -> Problem:
    """An untrained backbone, with k untrained inverse mechanisms."""
    backbone = BackboneConfig(name, pretrained=False).build()
    backbone.pretrained = True
    generator = bank_config("paper", small=quick_size(side)).generator
    return Problem(65, backbone, FrozenGenerators(generator.build() for _ in range(k)))


def measured_update(
    kind: type[TCM], precision: str, k: int, batch: int, side: int, name: str, *, compiled: bool
) -> float:
    """Seconds per image of one training step, counting all views."""
    fabric = make_fabric("auto", precision)
    on_gpu = fabric.device.type == "cuda"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    method = kind(problem(fabric, k, side, name), TCMConfig.for_images(small=quick_size(side)))
    fabric.to_device(method)
    optimizers, shown = method.build_optimizers(), random_batch(batch, side, fabric.device)
    made = torch.rand(2, k, batch, 3, side, side, device=fabric.device)
    shown = shown._replace(counterfactuals=Counterfactuals(made[0], made[1]))
    if on_gpu and compiled:
        method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        method.accelerate()

    def step(_: int) -> None:
        if on_gpu:
            torch.compiler.cudagraph_mark_step_begin()
        with fabric.autocast():
            method.update(shown, 0.5, optimizers)

    config = method.config
    images = batch * (2 + config.source_views + config.target_views)
    return seconds_a_call({"step": step}, fabric.device, 1 if quick_size(side) else 5)["step"] / images


def quick_size(side: int) -> bool:
    """Whether these are the small images of a quick check."""
    return side < 64


def report_prediction(form: str, k: int, batch: int, side: int, name: str) -> None:
    """Prints the cost of TCM Algorithm 2 in passes of the backbone alone."""
    fabric = make_fabric("auto", "auto")
    config = METHODS[form].for_images(small=quick_size(side))
    method: Method = config.build(problem(fabric, k, side, name)).eval()
    fabric.to_device(method)
    method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    images = torch.rand(batch, 3, side, side, device=fabric.device)

    def timed(call: Callable[[Tensor], object]) -> Callable[[int], object]:
        def run(_: int) -> None:
            with torch.inference_mode(), fabric.autocast():
                call(images)

        return run

    calls = {
        "backbone": timed(method.features),
        "fast": timed(method.predict_fast),
        "whole": timed(method.predict),
        "generators": timed(method.inverse_counterfactuals),
    }
    took = seconds_a_call(calls, fabric.device, 3)
    bare, rest = took["backbone"], took["whole"] - took["generators"]
    print(f"prediction of {form}, batch {batch}: the fast form takes {took['fast'] / bare:.2f} times the bare backbone")
    print(f"Algorithm 2 without the generators: {rest / bare / (1 + k):.2f} x (1 + k) times the bare backbone")
    print(f"the k = {k} generators: {took['generators'] / bare:.2f} times the bare backbone")
