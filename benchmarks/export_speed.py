"""Latency of PyTorch eager, PyTorch compiled and ONNX Runtime on a CPU, as ratios to eager in the same run.

python benchmarks/export_speed.py               ResNet-50, batches of 1 and 64 images, two threads
python benchmarks/export_speed.py --quick       the same with the small network
"""

import argparse
from collections.abc import Callable

import onnxruntime
import torch
from timing import seconds_a_call

from tcm.export.formats import onnx_bytes
from tcm.export.graph import ExportedNetwork, Preprocessing, Probabilities, traced
from tcm.methods.erm import ERMConfig
from tcm.methods.method import Problem
from tcm.nn.backbone import BackboneConfig

BATCHES = {1: (10, 5), 64: (1, 3)}  # images -> calls in a round, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    name, crop = ("small", 32) if arguments.quick else (arguments.backbone, 224)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    method = ERMConfig().build(Problem(65, BackboneConfig(name, pretrained=False).build()))
    network = ExportedNetwork(Probabilities(method, fast=False), Preprocessing(crop, crop), included=False)
    print(f"{name}, {crop} x {crop}, {arguments.threads} threads, torch {torch.__version__}")
    print("| batch | eager | compiled | ONNX Runtime | compiled / eager | ONNX / eager |\n|---|---|---|---|---|---|")
    calls = programs(network, arguments.threads)
    for count, (repeats, rounds) in BATCHES.items():
        print(row(count, calls, torch.rand(count, 3, crop, crop), repeats, rounds), flush=True)


def programs(network: ExportedNetwork, threads: int) -> dict[str, Callable[[torch.Tensor], object]]:
    """The three ways to run the network."""
    program = traced(network)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(onnx_bytes(program, {}, "probabilities"), options)
    return {
        "eager": network,
        "compiled": torch.compile(network, dynamic=False),
        "onnx": lambda images: session.run(None, {"images": images.numpy()}),
    }


@torch.no_grad()
def row(
    count: int, calls: dict[str, Callable[[torch.Tensor], object]], images: torch.Tensor, repeats: int, rounds: int
) -> str:
    """A row of the table: milliseconds of a batch, and ratios."""
    timed = {name: lambda _, call=call: call(images) for name, call in calls.items()}
    took = seconds_a_call(timed, torch.device("cpu"), repeats, rounds)
    times = " | ".join(f"{1000 * took[name]:.1f} ms" for name in calls)
    ratios = " | ".join(f"{took[name] / took['eager']:.2f}" for name in ("compiled", "onnx"))
    return f"| {count} | {times} | {ratios} |"


if __name__ == "__main__":
    main()
