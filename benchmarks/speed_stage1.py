"""Stage 1: steps against a straightforward implementation, growth with k, transport."""

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from timing import random_batch, seconds_a_call
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

from tcm.data.batch import Batch
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.competition import Terms
from tcm.mechanisms.pair import SIDES, Side, opposite
from tcm.mechanisms.pool import ImagePool
from tcm.mechanisms.train import Form, bank_config
from tcm.mechanisms.transport import counterfactuals
from tcm.nn.generator import InstanceNorm, ToRGB
from tcm.nn.losses import adversarial, critic_error, reconstruction
from tcm.training.device import make_fabric

LARGE = 64  # images of each domain in a step that fills a GPU
# Configurations of stage 1: the paper's form with equal wins, and with the wins of untrained mechanisms.
FORMS: dict[str, tuple[Form, dict[str, Any]]] = {
    "disentangled": ("disentangled", {}),
    "paper, wins even": ("paper", {"assignment": "random"}),
    "paper": ("paper", {}),
}


def as_is(module: nn.Module) -> None:
    """Replaces the faster layers of a mechanism's network by the plain layers that they stand for."""
    channels = 0
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Conv2d | nn.ConvTranspose2d):
                channels = child.out_channels
            if isinstance(child, ToRGB):
                setattr(parent, name, nn.Conv2d(child.in_channels, channels, child.kernel_size[0]))
            elif isinstance(child, InstanceNorm):
                setattr(parent, name, nn.InstanceNorm2d(channels))


def plain_step(bank: MechanismBank, batch: Batch, optimizers: dict[str, Optimizer]) -> None:
    """A straightforward step of stage 1: a loop over all mechanisms that keeps every graph, then the minimum."""
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
    """Seconds of a plain step with four mechanisms in fp32."""
    fabric = make_fabric("auto", "fp32")
    bank = bank_config("paper", quick).build(4, side, 100)
    as_is(bank)
    fabric.to_device(bank)
    optimizers, shown = bank.build_optimizers(), random_batch(batch, side, fabric.device)
    return seconds_a_call({"plain": lambda _: plain_step(bank, shown, optimizers)}, fabric.device, 1)["plain"]


def matrix_rate(device: torch.device) -> float:
    """Operations per second of a large bf16 matrix product."""
    side = 8192 if device.type == "cuda" else 256
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    return 2 * side**3 / seconds_a_call({"matmul": lambda _: a @ a}, device, 20)["matmul"]


class Step(NamedTuple):
    """The cost of one training step of stage 1."""

    seconds: float
    operations: float
    memory: float  # bytes
    setup: float  # seconds of compiling and recording


def measured_step(form: Form, k: int, batch: int, quick: bool, settings: dict[str, Any]) -> Step:
    """One step of this package with k mechanisms and `batch` images of each domain."""
    fabric = make_fabric("auto", "auto")
    on_gpu, side = fabric.device.type == "cuda", 32 if quick else 224
    if on_gpu:
        gc.collect()  # recorded steps hold on to their memory
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    bank = replace(bank_config(form, quick), warmup=0, **settings).build(k, side, 100)
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
        form, settings = FORMS[name]
        for batch in batches:
            four = measured_step(form, 4, batch, quick, settings)
            images = 2 * batch / four.seconds
            times = " and ".join(f"{images * seconds / size:.1f}" for seconds in references.values())
            print(
                f"{name}, k = 4, batch {batch} + {batch}: {images:.0f} images/s, {times} times the plain loop; "
                f"{100 * four.operations / four.seconds / rate:.0f} % of the matrix rate; "
                f"{four.memory / 2**30:.1f} GiB; ready after {four.setup:.0f} s"
            )


def growth(quick: bool, forms: list[str]) -> None:
    """The cost of twice as many mechanisms in stage 1."""
    batch = 4 if quick else LARGE
    for name in forms:
        form, settings = FORMS[name]
        four, eight = (measured_step(form, k, batch, quick, settings) for k in (4, 8))
        memory = f", {eight.memory / four.memory:.2f} times the memory" if four.memory else ""
        print(f"{name}, batch {batch} + {batch}: {2 * batch / four.seconds:.0f} images/s with k = 4")
        print(f"{name}, k = 8 against k = 4: {eight.seconds / four.seconds:.2f} times the time of a step{memory}")


def transport(quick: bool, forms: list[str]) -> None:
    """Stored images to counterfactuals."""
    kinds: list[Form] = [FORMS[name][0] for name in forms]
    for form in dict.fromkeys(kinds):
        for size in (32,) if quick else (224, 256):
            report_transport(form, size, 4 if quick else 128, quick)


def report_transport(form: Form, size: int, batch: int, quick: bool) -> None:
    """Prints how many stored images per second one mechanism transports, with losses, eager and compiled."""
    fabric = make_fabric("auto", "auto")
    bank = bank_config(form, quick).build(1, size, 1).eval()
    fabric.to_device(bank)
    bank.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    pixels = torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8, device=fabric.device)
    call: dict[str, Callable[[int], object]] = {"transport": lambda _: counterfactuals(fabric, bank, "source", pixels)}
    eager = seconds_a_call(call, fabric.device, 3)["transport"]
    print(f"transport, {form}, {size} x {size}: {batch / eager:.0f} images/s per mechanism, eager")
    if fabric.device.type == "cuda":
        bank.accelerate()
        compiled = seconds_a_call(call, fabric.device, 3)["transport"]
        print(f"compiled: {batch / compiled:.0f} images/s, {eager / compiled:.1f} times as fast")
