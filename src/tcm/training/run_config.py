"""What every training run can be told: data, length, seed, device. Both stages extend it."""

import dataclasses
import logging
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import torch
from lightning_fabric import Fabric
from torch import Tensor

from tcm.config import to_json
from tcm.data.stream import Stream
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError
from tcm.training.learner import Learner
from tcm.training.loop import Schedule
from tcm.training.run_folder import Run

R = TypeVar("R", bound="RunConfig")
Device = Literal["auto", "cpu", "cuda"]
BELOW_ONE = (".dropout", ".beta1", ".momentum")  # how the options end whose numbers are shares


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A training run."""

    data: DataConfig = field(default_factory=DataConfig)
    steps: int | None = None
    """Training steps. Each command has its default."""
    seed: int = 0
    """Every random choice follows from it."""
    batch: int = 32
    """Images of each domain in a step."""
    log_every: int = 20
    """Steps between rows of losses in metrics.jsonl."""
    evaluate_every: int | None = None
    """Steps between evaluations. Default: a tenth of the run."""
    save_every: int = 500
    """Steps between checkpoints."""
    device: Device = "auto"
    """auto: the GPU if there is one."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on a GPU that has it, fp32 otherwise."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the networks. auto: on a GPU, when the run is long enough to repay the minute it takes."""

    def settled(self: R, *, steps: int, least_batch: int = 1) -> R:
        """This config with the common defaults filled in; `steps` is the default of the command."""
        data = self.data.resolved()
        steps = steps if self.steps is None else self.steps
        every = max(steps // 10, 1) if self.evaluate_every is None else self.evaluate_every
        counts = {"steps": steps, "batch": self.batch, "log-every": self.log_every, "save-every": self.save_every}
        for name, value in {**counts, "evaluate-every": every}.items():
            least = least_batch if name == "batch" else 1
            if value < least:
                raise InputError(f"--{name} is {value}; give {least} or more")
        return dataclasses.replace(self, data=data, steps=steps, evaluate_every=every)

    @property
    def schedule(self) -> Schedule:
        """How long and how often (of a resolved config)."""
        assert self.steps is not None
        assert self.evaluate_every is not None
        return Schedule(self.steps, self.log_every, self.evaluate_every, self.save_every)


def require_usable(value: Any, option: str) -> None:
    """Refuses a method's numbers that no method can use: not finite, negative, a width of 0, a share of 1 or more."""
    if isinstance(value, dict):
        for key, item in value.items():
            require_usable(item, f"{option}.{key.replace('_', '-')}")
    elif isinstance(value, list):
        for item in value:
            require_usable(item, option)
    elif isinstance(value, int) and not isinstance(value, bool) and value < 1:
        raise InputError(f"{option} is {value}; give 1 or more")
    elif isinstance(value, float) and not 0 <= value <= torch.finfo(torch.float32).max:
        raise InputError(f"{option} is {value}; give a number from 0 up")
    elif isinstance(value, float) and option.endswith(BELOW_ONE) and value >= 1:
        raise InputError(f"{option} is {value}; give a number from 0 up and below 1")


def require_device(device: str) -> None:
    """An error if it is none that we know, or a GPU and there is none."""
    if device not in get_args(Device):
        raise InputError(f'--device is "{device}"; give one of {", ".join(get_args(Device))}')
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: no GPU is available here; use --device cpu or auto")


def make_fabric(device: str, precision: str) -> Fabric:
    """Lightning Fabric on the device and in the precision asked for."""
    require_device(device)
    accelerator = "cuda" if torch.cuda.is_available() and device != "cpu" else "cpu"
    if precision == "auto":
        precision = "bf16" if accelerator == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    torch.set_float32_matmul_precision("high" if accelerator == "cuda" else "highest")
    with warnings.catch_warnings():
        # Fabric remarks on hardware that is deliberately not used, and on the precision that was asked for.
        warnings.simplefilter("ignore")
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        return Fabric(accelerator=accelerator, devices=1, precision="bf16-mixed" if precision == "bf16" else "32-true")


def free_memory(device: torch.device) -> float:
    """Bytes that a GPU has left, or that the machine has."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def open_run(config: RunConfig, out: Path, kind: dict[str, str]) -> tuple[Fabric, Run]:
    """The device of a resolved config, and its run folder: a new one, or one of the same configuration."""
    fabric, run = make_fabric(config.device, config.precision), Run(out)
    run.start({**kind, **to_json(config)})
    return fabric, run


def open_stream(
    config: RunConfig,
    task: Task,
    fabric: Fabric,
    transported: tuple[Tensor, Tensor] | None = None,
    held_out: Tensor | None = None,
) -> Stream:
    """The batches of a resolved config's run, with the counterfactuals of both domains' images if there are any, and
    without the source images that are held out."""
    options = {"batch": config.batch, "seed": config.seed, "view": config.data.view, "device": fabric.device}
    return Stream(*task, **options, transported=transported, held_out=held_out)


def place(fabric: Fabric, learner: Learner, config: RunConfig) -> None:
    """Moves the learner to the device; on a GPU in channels-last memory and, for a long run, compiled."""
    fabric.to_device(learner)
    on_gpu = fabric.device.type == "cuda"
    if on_gpu:
        learner.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    if config.compile == "on" or (
        config.compile == "auto" and on_gpu and config.schedule.steps >= learner.worth_compiling
    ):
        learner.accelerate()
