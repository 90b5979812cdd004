"""Speed as ratios against a plain reference in the same run, never as bare seconds.

python benchmarks/speed.py input            share of a DANN step that making its batch takes
python benchmarks/speed.py input --quick    the same with a small network, for a look on a CPU
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from tcm.data.augment import View
from tcm.data.store import ImageStore, pack_arrays
from tcm.data.stream import Stream
from tcm.experiment import make_fabric
from tcm.methods.dann import DANNConfig
from tcm.methods.method import Problem
from tcm.nn.backbone import BackboneConfig


def seconds_a_call(call: Callable[[int], object], device: torch.device, repeats: int, rounds: int = 5) -> float:
    """Median over rounds of the time of one call, with the device drained before and after each round."""

    def drain() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    step, times = 0, []
    for _ in range(rounds + 1):
        start = drain()
        for _ in range(repeats):
            call(step)
            step += 1
        times.append((drain() - start) / repeats)
    return float(np.median(times[1:]))  # the first round warms up


def random_store(folder: Path, name: str, count: int, size: int) -> ImageStore:
    """A store of noise: the speed of the input side does not depend on what the images show."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return pack_arrays(name, images, rng.integers(0, 65, count), [str(c) for c in range(65)], ["x"] * count, folder)


def input_share(quick: bool) -> None:
    """Time of making a batch over the time of a whole training step, for both ways of feeding."""
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
        eager, last_batch = 0.0, lambda: None
        for resident in (True, False):
            options = {"batch": 32, "seed": 0, "view": View(crop, True, 0), "device": fabric.device}
            stream = Stream(*stores, **options, resident=resident)
            batch = stream.batch(0)

            def step_on(batch=batch) -> None:
                with fabric.autocast():
                    method.update(batch, 0.5, optimizers)

            compute = seconds_a_call(lambda _: step_on(), fabric.device, repeats)
            whole = seconds_a_call(lambda step, s=stream: step_on(s.batch(step)), fabric.device, repeats)
            alone = seconds_a_call(stream.batch, fabric.device, repeats)
            if resident:
                eager, last_batch = compute, step_on
            where = "on the device" if resident else "fed from pinned host memory"
            print(
                f"  images {where}: step {1e3 * whole:.2f} ms ({64 / whole:.0f} images/s); "
                f"the input adds {100 * (whole - compute) / whole:+.1f} % of it "
                f"(making a batch alone: {100 * alone / whole:.1f} %)"
            )
        if fabric.device.type == "cuda":
            started = time.perf_counter()
            for part in method.compiled_parts():
                part.compile()
            last_batch()
            torch.cuda.synchronize()
            compiling = time.perf_counter() - started
            faster = eager / seconds_a_call(lambda _: last_batch(), fabric.device, repeats)
            print(f"  compiled: {faster:.2f} times the eager step, after {compiling:.0f} s of compiling")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["input"])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    input_share(arguments.quick)


if __name__ == "__main__":
    main()
