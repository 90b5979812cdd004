"""The device and the precision of a run, and what the machine has."""

import logging
import math
import os
import warnings
from typing import Literal, get_args

import torch
from lightning_fabric import Fabric

from tcm.errors import InputError

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16"]


def require_device(device: str) -> None:
    """An error if the name is unknown, or names a GPU and there is none."""
    if device not in get_args(Device):
        raise InputError("device", f'is "{device}"; give one of {", ".join(get_args(Device))}')
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device", "is cuda, but no GPU is available here; give cpu or auto")


def make_fabric(device: str, precision: str) -> Fabric:
    """Lightning Fabric on this device, in this precision."""
    require_device(device)
    accelerator = "cuda" if torch.cuda.is_available() and device != "cpu" else "cpu"
    if precision == "auto":
        precision = "bf16" if accelerator == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    torch.set_float32_matmul_precision("high" if accelerator == "cuda" else "highest")
    with warnings.catch_warnings():
        # Fabric warns of hardware that is deliberately not used, and of the precision that was asked for.
        warnings.simplefilter("ignore")
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        return Fabric(accelerator=accelerator, devices=1, precision="bf16-mixed" if precision == "bf16" else "32-true")


def free_memory(device: torch.device) -> float:
    """Free bytes of a GPU, or all bytes of the machine; infinity if the system does not say."""
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
