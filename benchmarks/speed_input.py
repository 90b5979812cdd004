"""How much time making the batch adds to a training step, with images on the device and with images in host memory."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from timing import seconds_a_call
from torch import Tensor

from tcm.data.augment import View
from tcm.data.batch import Batch
from tcm.data.store import ImageStore, pack_arrays
from tcm.data.stream import Stream, Strong
from tcm.data.strong_views import PHOTOGRAPHS, SMALL_IMAGES
from tcm.methods import METHODS
from tcm.methods.method import MethodConfig, Problem
from tcm.nn.backbone import Backbone, BackboneConfig
from tcm.training.device import make_fabric

INPUT_METHODS = ("dann", "tcm-control", "tcm")
K = 4  # mechanisms of tcm
ALONE = "the input alone"


class Setting(NamedTuple):
    """The images and networks of the comparison."""

    backbone: str
    batch: int
    stored: int  # side of stored images
    crop: int
    images: int  # of each domain
    repeats: int  # steps that are timed together
    rounds: int


LARGE = Setting("resnet50.tv_in1k", 32, 256, 224, 2000, repeats=30, rounds=5)
QUICK = Setting("small", 8, 36, 32, 64, repeats=3, rounds=2)


def random_store(folder: Path, name: str, count: int, size: int) -> ImageStore:
    """A store of noise: the speed of reading does not depend on the content of the images."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return pack_arrays(name, images, rng.integers(0, 65, count), [str(c) for c in range(65)], ["x"] * count, folder)


def counterfactuals_of(store: ImageStore, file: Path) -> Tensor:
    """K counterfactuals of each image of a store, memory-mapped as those of stage 1 are; here copies of the images."""
    shape = (len(store), K, *store.images.shape[1:])
    np.lib.format.open_memmap(file, "w+", dtype=np.uint8, shape=shape)[:] = store.images.numpy()[:, None]
    return torch.from_numpy(np.lib.format.open_memmap(file, "c"))


def input_share(quick: bool, methods: list[str]) -> None:
    """Prints for each method how much images on the device and images in host memory add to its computation."""
    setting = QUICK if quick else LARGE
    fabric = make_fabric("auto", "auto")
    shown = f"{setting.backbone}, batch {setting.batch} + {setting.batch}, crops of {setting.crop}"
    print(f"{shown}, {fabric.device}, {fabric._precision.precision}", flush=True)
    with TemporaryDirectory() as folder:
        stores = [
            random_store(Path(folder) / side, side, setting.images, setting.stored) for side in ("source", "target")
        ]
        made: tuple[Tensor, Tensor] | None = None
        if "tcm" in methods:
            source, target = (counterfactuals_of(store, Path(folder) / f"{store.name}.npy") for store in stores)
            made = source, target
        backbones: dict[int, Backbone] = {}  # by the images of a step: one compiled network for methods with as many
        for name in methods:
            report(name, setting, fabric, stores, made if name == "tcm" else None, backbones)


def report(
    name: str,
    setting: Setting,
    fabric: Any,
    stores: list[ImageStore],
    made: tuple[Tensor, Tensor] | None,
    backbones: dict[int, Backbone],
) -> None:
    """Prints the lines of one method: not compiled, and on a GPU compiled. A backbone that is known is compiled."""
    config = METHODS[name].for_images(small=setting is QUICK)
    share = config.strong_counterfactuals
    strong = None if share is None else Strong(SMALL_IMAGES if setting is QUICK else PHOTOGRAPHS, share)
    options = {"batch": setting.batch, "seed": 0, "view": View(setting.crop, True, 0), "device": fabric.device}
    streams = {
        where: Stream(*stores, **options, transported=made, strong=strong, resident=resident)
        for where, resident in (("resident", True), ("fed", False))
    }
    images = setting.batch * (2 if strong is None else 4)
    compiled = images in backbones and fabric.device.type == "cuda"
    update = training_step(config, setting, fabric, backbones, images)
    arguments = update, streams, setting, images
    if compiled:
        measured(f"{name}, compiled", *arguments)
        return
    eager = measured(f"{name}, not compiled", update, streams, setting._replace(rounds=1), images)
    if fabric.device.type == "cuda":
        started, batch = time.perf_counter(), streams["resident"].batch(0)
        torch.compiler.reset()  # else a second batch size makes the compiler use slower code for any batch size
        backbones[images].compile(mode="reduce-overhead")
        update(batch)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        ratio = eager / measured(f"{name}, compiled", *arguments)
        print(f"{name}: compiled {ratio:.2f} times as fast, after {seconds:.0f} s", flush=True)


def training_step(
    config: MethodConfig, setting: Setting, fabric: Any, backbones: dict[int, Backbone], images: int
) -> Callable[[Batch], None]:
    """A training step of the method, on the backbone for so many images."""
    if images not in backbones:
        backbones[images] = BackboneConfig(setting.backbone, pretrained=False).build()
        backbones[images].pretrained = True
    method = config.build(Problem(65, backbones[images]))
    fabric.to_device(method)
    if fabric.device.type == "cuda":
        method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimizers = method.train().build_optimizers()

    def update(batch: Batch) -> None:
        if fabric.device.type == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        with fabric.autocast():
            method.update(batch, 0.5, optimizers)

    return update


def measured(
    title: str,
    update: Callable[[Batch], None],
    streams: dict[str, Stream],
    setting: Setting,
    images: int,
) -> float:
    """Prints how much the input adds to a step of `images` images; returns the seconds of the computation alone.

    Every stream is asked for one step after the other, as in training.
    """
    batch = streams["resident"].batch(0)
    calls: dict[str, Callable[[int], object]] = {"compute": lambda _: update(batch)}
    for where, stream in streams.items():
        calls[where] = lambda step, stream=stream: update(stream.batch(step))
    device, fed = streams["fed"].device, streams["fed"]
    took = seconds_a_call(calls, device, setting.repeats, setting.rounds)
    took |= seconds_a_call({ALONE: fed.batch}, device, setting.repeats, setting.rounds)
    added = {where: f"{100 * (took[where] / took['compute'] - 1):+.1f} %" for where in streams}
    rate = {what: f"{images / seconds:,.0f}" for what, seconds in took.items()}
    print(
        f"{title}: added by feeding from host memory, relative to compute: {added['fed']} "
        f"(images on the device: {added['resident']}); images/s: compute {rate['compute']}, "
        f"on the device {rate['resident']}, fed {rate['fed']}, {ALONE} {rate[ALONE]}",
        flush=True,
    )
    return took["compute"]
