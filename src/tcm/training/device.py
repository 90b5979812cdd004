"""The device and the precision of a run, and what the machine has."""

from __future__ import annotations

import logging
import math
import os
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

import torch
from torch import nn

from tcm.errors import InputError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Device = Literal["auto", "cpu", "cuda", "mps"]
Accelerator = Literal["cpu", "cuda", "mps"]
Precision = Literal["auto", "fp32", "bf16"]


class Compute(Protocol):
    """Where networks run, and in which precision: Lightning Fabric in training, `Inference` elsewhere."""

    @property
    def device(self) -> torch.device:
        """The device of all tensors."""
        ...

    def autocast(self) -> AbstractContextManager[Any]:
        """A context in which networks compute in the precision of the run."""
        ...

    def to_device(self, obj: nn.Module, /) -> nn.Module:
        """The network, moved to the device."""
        ...


class Inference(NamedTuple):
    """The device and the precision of what trains nothing. It loads in no time, unlike Fabric, which loads the
    compiler of PyTorch."""

    device: torch.device
    precision: Literal["fp32", "bf16"]

    def autocast(self) -> AbstractContextManager[Any]:
        """A context in which networks compute in this precision, as Fabric's does."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()

    def to_device(self, obj: nn.Module, /) -> nn.Module:
        """The network, moved to the device."""
        return obj.to(self.device)


def require_device(device: str) -> None:
    """An error if the name is unknown, or names a GPU and there is none."""
    if device not in get_args(Device):
        raise InputError("device", f'is "{device}"; give one of {", ".join(get_args(Device))}')
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device", "is cuda, but no GPU is available here; give cpu or auto")
    if device == "mps" and not torch.backends.mps.is_available():
        raise InputError("device", "is mps, but this is not an Apple computer with a GPU; give cpu or auto")


def accelerator_of(device: str) -> Accelerator:
    """cuda, mps or cpu: the device itself, or for auto the best one that there is."""
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        return "cuda"
    return "mps" if device == "mps" or (device == "auto" and torch.backends.mps.is_available()) else "cpu"


def has_accelerator(device: str) -> bool:
    """Whether a run on this device uses a GPU."""
    return accelerator_of(device) != "cpu"


def resolved_device(device: str, precision: str) -> tuple[Accelerator, Literal["fp32", "bf16"]]:
    """Device and precision without auto, for this machine."""
    require_device(device)
    accelerator = accelerator_of(device)
    if precision == "auto":
        precision = "bf16" if accelerator == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    return accelerator, "bf16" if precision == "bf16" else "fp32"


def computes_bf16(device: str) -> bool:
    """Whether bf16 is faster than fp32 on this device: on GPUs that have it, and CPUs with instructions for it."""
    accelerator = accelerator_of(device)
    if accelerator == "cuda":
        return torch.cuda.is_bf16_supported()
    known = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return accelerator == "cpu" and any(getattr(torch.cpu, name, bool)() for name in known)


def inference_on(device: str, precision: str, gpu: int = 0) -> Inference:
    """This device and precision, for what trains nothing; `gpu` is the number of the GPU."""
    accelerator, precision = resolved_device(device, precision)
    torch.set_float32_matmul_precision("high" if accelerator == "cuda" else "highest")
    return Inference(torch.device(f"cuda:{gpu}" if accelerator == "cuda" else accelerator), precision)


def make_fabric(device: str, precision: str, gpu: int = 0) -> Fabric:
    """Lightning Fabric on this device, in this precision, for training; `gpu` is the number of the GPU."""
    from lightning_fabric import Fabric  # imported here: it takes as long as PyTorch itself
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment

    accelerator, precision = resolved_device(device, precision)
    torch.set_float32_matmul_precision("high" if accelerator == "cuda" else "highest")
    with warnings.catch_warnings():
        # Fabric warns of hardware that is deliberately not used, and of the precision that was asked for.
        warnings.simplefilter("ignore")
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        return Fabric(
            accelerator=accelerator,
            devices=[gpu] if accelerator == "cuda" else 1,
            precision="bf16-mixed" if precision == "bf16" else "32-true",
            plugins=LightningEnvironment(),  # one device: other processes are no matter of Fabric's
        )


def uncompiled() -> AbstractContextManager[Any]:
    """A context in which networks that are compiled for training run as they are written.

    Where nothing is compiled, the compiler is not loaded either.
    """
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def free_memory(device: torch.device) -> float:
    """Free bytes of a GPU, or all bytes of the machine, which Apple's GPUs share; infinity if they are unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if not hasattr(os, "sysconf"):  # Windows
        return math.inf
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cpu_count() -> int:
    """The number of CPUs that this process may use."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1  # pyright: ignore[reportAttributeAccessIssue]
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
