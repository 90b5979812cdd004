"""What the path for several processes costs on one GPU, in one process: ratios of images/s of DANN steps.

torchrun --nproc-per-node 1 benchmarks/speed_processes.py            ResNet-50 on a GPU
torchrun --nproc-per-node 1 benchmarks/speed_processes.py --quick    small networks, for a quick check on a CPU

A run of one process takes the same path whether torchrun starts it or not, so what may differ is a process group that
is there. It is compared before and after NCCL has been initialised. The path for several processes (a batch divided
among one process, batch normalisation over all processes, gradients summed over all) is compared with the plain one,
both not compiled, because several processes compile nothing.
"""

import argparse
import os
import socket
from collections.abc import Callable

import torch
import torch.distributed as dist
from speed_input import LARGE, QUICK, Setting
from timing import random_batch, seconds_a_call

from tcm.methods.dann import DANNConfig
from tcm.methods.method import Method, Problem
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import make_fabric
from tcm.training.launch import World, joined


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    setting = QUICK if parser.parse_args().quick else LARGE
    torch.set_autocast_cache_enabled(False)
    fabric = make_fabric("auto", "auto")
    on_gpu, images = fabric.device.type == "cuda", 2 * setting.batch
    batch = random_batch(setting.batch, setting.crop, fabric.device)

    def step_of(method: Method) -> Callable[[int], object]:
        fabric.to_device(method)
        if on_gpu:
            method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        optimizers = method.train().build_optimizers()

        def step(_: int) -> None:
            if on_gpu:
                torch.compiler.cudagraph_mark_step_begin()
            with fabric.autocast():
                method.update(batch, 0.5, optimizers)

        return step

    def seconds(calls: dict[str, Callable[[int], object]]) -> dict[str, float]:
        return seconds_a_call(calls, fabric.device, setting.repeats, setting.rounds)

    compiled = dann(setting)
    step = step_of(compiled)
    if on_gpu:
        compiled.accelerate()
    alone = seconds({"compiled": step})["compiled"]
    processes = joined(meeting(), on_gpu)
    dist.all_reduce(torch.ones(1, device=fabric.device))  # the first exchange initialises NCCL
    after = seconds({"compiled": step})["compiled"]
    kind = "compiled" if on_gpu else "plain"
    print(f"{shown(setting)}, {fabric.device}, {fabric._precision.precision}, {dist.get_backend()}")
    print(
        f"one process, {kind}: {images / alone:,.0f} images/s before and {images / after:,.0f} after the process "
        f"group is there, {alone / after:.3f} times as many"
    )
    plain, divided = dann(setting), dann(setting)
    steps = {"plain": step_of(plain), "divided": step_of(divided)}  # on the device before it is divided, as in a run
    divided.divide(processes)
    took = seconds(steps)
    print(
        f"not compiled: {images / took['plain']:,.0f} images/s, and {images / took['divided']:,.0f} by the path for "
        f"several processes, {took['plain'] / took['divided']:.3f} times as many"
    )


def shown(setting: Setting) -> str:
    """The setting in words."""
    return f"DANN on {setting.backbone}, batch {setting.batch} + {setting.batch}, crops of {setting.crop}"


def dann(setting: Setting) -> Method:
    """DANN with random weights."""
    backbone = BackboneConfig(setting.backbone, pretrained=False).build()
    backbone.pretrained = True
    return DANNConfig().build(Problem(65, backbone))


def meeting() -> World:
    """The place of the only process, as torchrun gives it or at a free port."""
    if "MASTER_PORT" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    return World(0, 1, 0, 1, "env://")


if __name__ == "__main__":
    main()
