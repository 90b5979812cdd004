"""Speed as ratios against a plain reference in the same run, never as bare seconds.

python benchmarks/speed.py input            share of a DANN step that making its batch takes
python benchmarks/speed.py stage1           steps of stage 1 against the straightforward form
python benchmarks/speed.py growth           steps of stage 1 with 8 mechanisms against 4
python benchmarks/speed.py transport        stored images to counterfactuals
python benchmarks/speed.py stage2           steps of stage 2 against a pass per view; prediction
python benchmarks/speed.py ... --quick      the same with small networks, for a look on a CPU
"""

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

from tcm.data.augment import View
from tcm.data.store import ImageStore, pack_arrays
from tcm.data.stream import Stream
from tcm.learner import Batch, Counterfactuals
from tcm.losses import adversarial, critic_error, reconstruction
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.competition import Terms
from tcm.mechanisms.discovery import Preset, preset_bank
from tcm.mechanisms.pair import SIDES, Side, opposite
from tcm.mechanisms.pool import ImagePool
from tcm.mechanisms.transport import counterfactuals
from tcm.methods.dann import DANNConfig
from tcm.methods.method import Problem
from tcm.methods.tcm import TCM, preset_tcm
from tcm.methods.tcm import Preset as Form
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators, InstanceNorm, ToColours
from tcm.settings import make_fabric

ROUNDS = 7
LARGE = 64  # images of each domain in a step that fills a GPU
# What is measured of stage 1: the paper's form when all mechanisms win alike, and as the wins of fresh ones fall.
FORMS: dict[str, tuple[Preset, dict[str, Any]]] = {
    "default": ("default", {}),
    "paper, wins even": ("paper", {"assignment": "random"}),
    "paper": ("paper", {}),
}


def seconds_a_call(calls: dict[str, Callable[[int], object]], device: torch.device, repeats: int) -> dict[str, float]:
    """Median time of one call of each, taken in turns so that a drifting clock touches all alike."""

    def drain() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_number in range(ROUNDS + 1):
        for name, call in calls.items():
            start = drain()
            for step in range(repeats):
                call(round_number * repeats + step)
            times[name].append((drain() - start) / repeats)
    return {name: float(np.median(taken[1:])) for name, taken in times.items()}  # the first round warms up


def random_store(folder: Path, name: str, count: int, size: int) -> ImageStore:
    """A store of noise: the speed of the input side does not depend on what the images show."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return pack_arrays(name, images, rng.integers(0, 65, count), [str(c) for c in range(65)], ["x"] * count, folder)


def input_share(quick: bool, forms: list[str]) -> None:
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
    """Prints what the input adds to a step for both ways of feeding; the time of the computation alone."""
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


def as_is(module: nn.Module) -> None:
    """Puts back the plain layers that stand where a mechanism's network has faster forms of them."""
    channels = 0
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Conv2d | nn.ConvTranspose2d):
                channels = child.out_channels
            if isinstance(child, ToColours):
                setattr(parent, name, nn.Conv2d(child.in_channels, channels, child.kernel_size[0]))
            elif isinstance(child, InstanceNorm):
                setattr(parent, name, nn.InstanceNorm2d(channels))


def plain_step(bank: MechanismBank, batch: Batch, optimizers: dict[str, Optimizer]) -> None:
    """Stage 1 in the straightforward form: a loop over all mechanisms that keeps every graph, then the minimum."""
    images: dict[Side, Tensor] = {"source": 2 * batch.source - 1, "target": 2 * batch.target - 1}
    bank.critics.requires_grad_(False)
    losses, made = [], {}
    for side in SIDES:
        totals, made[side] = [], []
        for pair in bank.pairs():
            there, back, critic = pair.network(opposite(side)), pair.network(side), bank.critic(opposite(side))
            carried = there(images[side])
            parts = (reconstruction(back(shown), images[side]) for shown in (carried, images[side]))
            totals.append(bank.total(Terms(adversarial(critic(carried)), *parts)))
            made[side].append(carried)
        losses.append(torch.stack(totals).min(dim=0).values.mean())
    for name, optimizer in optimizers.items():
        if name != "critics":
            optimizer.zero_grad()
    torch.stack(losses).sum().backward()
    for name, optimizer in optimizers.items():
        if name != "critics":
            optimizer.step()
    bank.critics.requires_grad_(True)
    optimizers["critics"].zero_grad()
    for side in SIDES:
        critic, pool = bank.critic(opposite(side)), bank.pools[opposite(side)]
        assert isinstance(pool, ImagePool)
        on_made = torch.cat([critic(pool.exchange(carried)) for carried in made[side]])
        (critic_error(critic(images[opposite(side)]), 1.0) + critic_error(on_made, 0.0)).backward()
    optimizers["critics"].step()


def plain_seconds(batch: int, side: int, quick: bool) -> float:
    """The time of a plain step with four mechanisms in fp32."""
    fabric = make_fabric("auto", "fp32")
    bank = preset_bank("paper", quick).build(4, side, 100)
    as_is(bank)
    fabric.to_device(bank)
    optimizers, shown = bank.build_optimizers(), random_batch(batch, side, fabric.device)
    return seconds_a_call({"plain": lambda _: plain_step(bank, shown, optimizers)}, fabric.device, 1)["plain"]


def random_batch(count: int, side: int, device: torch.device) -> Batch:
    """Noise, as fast as any other images."""
    images = torch.rand(2, count, 3, side, side, device=device)
    return Batch(images[0], torch.zeros(count, dtype=torch.int64, device=device), images[1])


def matrix_rate(device: torch.device) -> float:
    """Operations a second of a large bf16 matrix product."""
    side = 8192 if device.type == "cuda" else 256
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    return 2 * side**3 / seconds_a_call({"matmul": lambda _: a @ a}, device, 20)["matmul"]


class Step(NamedTuple):
    """What one training step of stage 1 costs."""

    seconds: float
    operations: float
    memory: float  # bytes
    setup: float  # seconds of compiling and recording


def measured_step(preset: Preset, k: int, batch: int, quick: bool, settings: dict[str, Any]) -> Step:
    """A step of our form with k mechanisms and that batch of each domain."""
    fabric = make_fabric("auto", "auto")
    on_gpu, side = fabric.device.type == "cuda", 32 if quick else 224
    if on_gpu:
        gc.collect()  # recorded steps hold on to their memory
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    bank = replace(preset_bank(preset, quick), warmup=0, **settings).build(k, side, 100)
    fabric.to_device(bank)
    bank.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimizers = bank.build_optimizers()
    shown = random_batch(batch, side, fabric.device)

    def step(_: int) -> None:
        with fabric.autocast():
            bank.update(shown, 0.9, optimizers)

    with FlopCounterMode(display=False) as counter:
        step(0)
    started = time.perf_counter()
    if on_gpu:
        bank.accelerate()
    for _ in range(8):
        step(0)
    if on_gpu:
        torch.cuda.synchronize()
    setup = time.perf_counter() - started
    seconds = seconds_a_call({"step": step}, fabric.device, 1 if quick else 5)["step"]
    memory = torch.cuda.max_memory_reserved() if on_gpu else 0
    return Step(seconds, counter.get_total_flops(), memory, setup)


def stage1(quick: bool, forms: list[str]) -> None:
    """Steps of stage 1 against the plain loop."""
    fabric = make_fabric("auto", "fp32")
    side, batches = (32, (4,)) if quick else (224, (8, LARGE))
    size = 2 * batches[0]
    references = {}
    for name, exact in (("fp32", True), ("fp32 with TF32 convolutions", False)):
        torch.backends.cudnn.allow_tf32 = not exact
        references[name] = plain_seconds(batches[0], side, quick)
        print(f"plain loop, {name}, k = 4, batch {batches[0]} + {batches[0]}: {size / references[name]:.0f} images/s")
        if fabric.device.type != "cuda":
            break
    rate = matrix_rate(fabric.device)
    print(f"bf16 matrix product: {rate / 1e12:.2f} TFLOP/s")
    for name in forms:
        preset, settings = FORMS[name]
        for batch in batches:
            four = measured_step(preset, 4, batch, quick, settings)
            images = 2 * batch / four.seconds
            times = " and ".join(f"{images * seconds / size:.1f}" for seconds in references.values())
            print(
                f"{name}, k = 4, batch {batch} + {batch}: {images:.0f} images/s, {times} times the plain loop; "
                f"{100 * four.operations / four.seconds / rate:.0f} % of the matrix rate; "
                f"{four.memory / 2**30:.1f} GiB; ready after {four.setup:.0f} s"
            )


def growth(quick: bool, forms: list[str]) -> None:
    """What twice as many mechanisms cost in stage 1."""
    batch = 4 if quick else LARGE
    for name in forms:
        preset, settings = FORMS[name]
        four, eight = (measured_step(preset, k, batch, quick, settings) for k in (4, 8))
        memory = f", {eight.memory / four.memory:.2f} times the memory" if four.memory else ""
        print(f"{name}, batch {batch} + {batch}: {2 * batch / four.seconds:.0f} images/s with k = 4")
        print(f"{name}, k = 8 against k = 4: {eight.seconds / four.seconds:.2f} times the time of a step{memory}")


def transport(quick: bool, forms: list[str]) -> None:
    """Stored images to counterfactuals."""
    presets: list[Preset] = [FORMS[name][0] for name in forms]
    for preset in dict.fromkeys(presets):
        for size in (32,) if quick else (224, 256):
            report_transport(preset, size, 4 if quick else 128, quick)


def report_transport(preset: Preset, size: int, batch: int, quick: bool) -> None:
    """Prints how many stored images a second one mechanism transports, judged by the critic, eager and compiled."""
    fabric = make_fabric("auto", "auto")
    bank = preset_bank(preset, quick).build(1, size, 1).eval()
    fabric.to_device(bank)
    bank.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    pixels = torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8, device=fabric.device)
    call: dict[str, Callable[[int], object]] = {"transport": lambda _: counterfactuals(fabric, bank, "source", pixels)}
    eager = seconds_a_call(call, fabric.device, 3)["transport"]
    print(f"transport, {preset}, {size} x {size}: {batch / eager:.0f} images/s a mechanism, eager")
    if fabric.device.type == "cuda":
        bank.accelerate()
        compiled = seconds_a_call(call, fabric.device, 3)["transport"]
        print(f"compiled: {batch / compiled:.0f} images/s, {eager / compiled:.1f} times as fast")


class PassPerView(TCM):
    """Stage 2 in the straightforward form: one pass of the backbone for every view of a batch."""

    at_once = 32

    def looked_at(self, images: Tensor) -> Tensor:
        """The features, view by view."""
        return torch.cat([super(PassPerView, self).looked_at(part) for part in images.split(self.at_once)])


def stage2(quick: bool, forms: list[str]) -> None:
    """Steps of stage 2 against a pass per view in fp32, and prediction against the bare backbone."""
    k, batch, side, name = (4, 4, 32, "small") if quick else (4, 32, 224, "resnet50")
    plain = measured_update(PassPerView, "fp32", k, batch, side, name, compiled=False)
    ours = measured_update(TCM, "auto", k, batch, side, name, compiled=True)
    print(f"a pass per view, fp32: {1 / plain:.0f} images/s")
    print(f"one pass, bf16, compiled: {1 / ours:.0f} images/s, {plain / ours:.1f} times as many")
    for preset in ("default", "paper"):
        report_prediction(preset, k, 4 if quick else 64, side, name)


def built(kind: type[TCM], fabric: Fabric, k: int, side: int, name: str, preset: Form = "default") -> TCM:
    """A form of stage 2 on an untrained backbone, with k untrained inverse mechanisms."""
    backbone = BackboneConfig(name, pretrained=False).build()
    backbone.pretrained = True
    generator = preset_bank("default", small=side < 64).generator
    config = preset_tcm(preset, small=quick_size(side))
    method = kind(Problem(65, backbone, FrozenGenerators(generator.build() for _ in range(k))), config)
    fabric.to_device(method)
    return method


def measured_update(
    kind: type[TCM], precision: str, k: int, batch: int, side: int, name: str, *, compiled: bool
) -> float:
    """Seconds for an image of one training step, all views counted."""
    fabric = make_fabric("auto", precision)
    on_gpu = fabric.device.type == "cuda"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    method = built(kind, fabric, k, side, name)
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
    assert config.source_views is not None
    assert config.target_views is not None
    images = batch * (2 + config.source_views + config.target_views)
    return seconds_a_call({"step": step}, fabric.device, 1 if quick_size(side) else 5)["step"] / images


def quick_size(side: int) -> bool:
    """Whether these are the small images of a quick look."""
    return side < 64


def report_prediction(preset: Form, k: int, batch: int, side: int, name: str) -> None:
    """Prints what Algorithm 2 costs, in passes of the bare backbone."""
    fabric = make_fabric("auto", "auto")
    method = built(TCM, fabric, k, side, name, preset).eval()
    method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    images = torch.rand(batch, 3, side, side, device=fabric.device)

    def timed(call: Callable[[Tensor], object]) -> Callable[[int], object]:
        def run(_: int) -> None:
            with torch.inference_mode(), fabric.autocast():
                call(images)

        return run

    calls = {
        "backbone": timed(method.features if preset == "paper" else lambda x: method.classified(method.looked_at(x))),
        "fast": timed(method.predict_fast),
        "whole": timed(method.predict),
        "generators": timed(method.inverse_counterfactuals),
    }
    took = seconds_a_call(calls, fabric.device, 3)
    bare, rest = took["backbone"], took["whole"] - took["generators"]
    print(
        f"prediction of {preset}, batch {batch}: the fast form takes {took['fast'] / bare:.2f} times the bare backbone"
    )
    print(f"Algorithm 2 without the generators: {rest / bare / (1 + k):.2f} x (1 + k) times the bare backbone")
    print(f"the k = {k} generators: {took['generators'] / bare:.2f} times the bare backbone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"input": input_share, "stage1": stage1, "growth": growth, "transport": transport, "stage2": stage2}
    parser.add_argument("what", choices=parts)
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=list(FORMS), help="forms of stage 1")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    torch.set_autocast_cache_enabled(False)
    parts[arguments.what](arguments.quick, arguments.forms)


if __name__ == "__main__":
    main()
