"""How much time making the batch adds to a step of DANN."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from timing import seconds_a_call

from tcm.data.augment import View
from tcm.data.batch import Batch
from tcm.data.store import ImageStore, pack_arrays
from tcm.data.stream import Stream
from tcm.methods.dann import DANNConfig
from tcm.methods.method import Problem
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import make_fabric


def random_store(folder: Path, name: str, count: int, size: int) -> ImageStore:
    """A store of noise: the speed of reading does not depend on the content of the images."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return pack_arrays(name, images, rng.integers(0, 65, count), [str(c) for c in range(65)], ["x"] * count, folder)


def input_share(quick: bool, forms: list[str]) -> None:
    """Time of making a batch relative to a whole training step, with images on the device and in host memory."""
    fabric = make_fabric("auto", "auto")
    size, crop, count, repeats = (36, 32, 400, 5) if quick else (256, 224, 4000, 20)
    name = "small" if quick else "resnet50"
    with TemporaryDirectory() as folder:
        stores = [random_store(Path(folder) / side, side, count, size) for side in ("source", "target")]
        backbone = BackboneConfig(name, pretrained=False).build()
        backbone.pretrained = True
        method = DANNConfig().build(Problem(65, backbone))
        fabric.to_device(method)
        method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        optimizers = method.build_optimizers()
        print(f"DANN on {name}, batch 32 + 32, {crop} x {crop}, {fabric.device}, {fabric._precision.precision}")

        def update(batch: Batch) -> None:
            if fabric.device.type == "cuda":
                torch.compiler.cudagraph_mark_step_begin()
            with fabric.autocast():
                method.update(batch, 0.5, optimizers)

        options = {"batch": 32, "seed": 0, "view": View(crop, True, 0), "device": fabric.device}
        streams = {kept: Stream(*stores, **options, resident=kept) for kept in (True, False)}
        batch = streams[True].batch(0)
        eager = report_shares("eager", update, batch, streams, repeats)
        if fabric.device.type == "cuda":
            started = time.perf_counter()
            method.accelerate()
            update(batch)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - started
            compiled = report_shares("compiled", update, batch, streams, repeats)
            print(f"compiled: {eager / compiled:.2f} times as fast as eager, after {seconds:.0f} s of compiling")


def report_shares(
    title: str, update: Callable[[Batch], None], batch: Batch, streams: dict[bool, Stream], repeats: int
) -> float:
    """Prints how much the input adds to a step; the time of the computation alone."""
    took: dict[str, float] = {}
    for resident, stream in streams.items():
        calls = {
            "compute": lambda _: update(batch),
            "whole": lambda step, s=stream: update(s.batch(step)),
            "input": stream.batch,
        }
        took = seconds_a_call(calls, stream.device, repeats)
        where = "on the device" if resident else "fed from host memory"
        print(
            f"{title}, images {where}: {64 / took['whole']:.0f} images/s; "
            f"the input adds {100 * (took['whole'] / took['compute'] - 1):+.1f} % to a step "
            f"(making batches alone takes {100 * took['input'] / took['whole']:.1f} % of it)"
        )
    return took["compute"]
