"""The device and the precision of a run, and what the machine has."""

import logging
import math
import os
import warnings
from typing import Literal, get_args

import torch
from lightning_fabric import Fabric

from tcm.errors import InputError

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "fp32", "bf16"]


def require_device(device: str) -> None:
    """An error if the name is unknown, or names a GPU and there is none."""
    if device not in get_args(Device):
        raise InputError("device", f'is "{device}"; give one of {", ".join(get_args(Device))}')
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device", "is cuda, but no GPU is available here; give cpu or auto")
    if device == "mps" and not torch.backends.mps.is_available():
        raise InputError("device", "is mps, but this is no Apple computer with a GPU; give cpu or auto")


def accelerator_of(device: str) -> str:
    """cuda, mps or cpu: the device itself, or for auto the best one that there is."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def has_accelerator(device: str) -> bool:
    """Whether a run on this device uses a GPU."""
    return accelerator_of(device) != "cpu"


def make_fabric(device: str, precision: str) -> Fabric:
    """Lightning Fabric on this device, in this precision."""
    require_device(device)
    accelerator = accelerator_of(device)
    if precision == "auto":
        precision = "bf16" if accelerator == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    torch.set_float32_matmul_precision("high" if accelerator == "cuda" else "highest")
    with warnings.catch_warnings():
        # Fabric warns of hardware that is deliberately not used, and of the precision that was asked for.
        warnings.simplefilter("ignore")
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        return Fabric(accelerator=accelerator, devices=1, precision="bf16-mixed" if precision == "bf16" else "32-true")


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
