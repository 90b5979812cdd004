"""The options that both stages share: data, length, seed, device. Each stage extends `RunConfig`."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from tcm.config import to_json
from tcm.data.samples import strength_of
from tcm.data.stream import Stream, Strong
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError
from tcm.training.device import Compute, Device, Precision, make_fabric
from tcm.training.launch import require_images, start_processes
from tcm.training.learner import Learner
from tcm.training.loop import Schedule
from tcm.training.processes import ALONE, Processes
from tcm.training.run_folder import Run

R = TypeVar("R", bound="RunConfig")
# Endings of the fields with narrower limits.
BELOW_ONE = (".dropout", ".beta1", "momentum", ".source_share", ".spreading")
AT_MOST_ONE = (".threshold", ".counterfactuals", ".smoothing")
MORE_THAN_ZERO = (".temperature", ".concentration", ".epsilon")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A training run."""

    data: DataConfig = field(default_factory=DataConfig)
    steps: int | None = None
    """Training steps. Each command has its default."""
    seed: int = 0
    """Seed of all random choices."""
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
    devices: int = 1
    """Number of GPUs, or on a CPU of processes, that divide the images of each step. Not needed with torchrun or
    srun."""
    precision: Precision = "auto"
    """auto: bf16 on a GPU that supports it, fp32 otherwise."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the networks. auto: on one GPU, if the run is long enough to win back the minute that it takes."""

    def with_defaults(self: R, *, steps: int, min_batch: int = 1) -> R:
        """This config with the common defaults filled in and checked; `steps` is the default of the stage."""
        data = self.data.resolved()
        steps = steps if self.steps is None else self.steps
        every = max(steps // 10, 1) if self.evaluate_every is None else self.evaluate_every
        config = dataclasses.replace(self, data=data, steps=steps, evaluate_every=every)
        for name in ("steps", "batch", "log_every", "save_every", "evaluate_every", "devices"):
            value, least = getattr(config, name), min_batch if name == "batch" else 1
            if value < least:
                raise InputError(name, f"is {value}; give {least} or more")
        require_divisible(config, self.devices)
        return config

    @property
    def schedule(self) -> Schedule:
        """The schedule of a config whose defaults are filled in."""
        assert self.steps is not None
        assert self.evaluate_every is not None
        return Schedule(self.steps, self.log_every, self.evaluate_every, self.save_every)


def require_valid_numbers(value: Any, field: str) -> None:
    """An error if a number in a config's JSON cannot be used: not finite, negative, a width of 0, a share of 1 or more.

    `field` is the path of the config, such as "method".
    """
    if isinstance(value, dict):
        for key, item in value.items():
            require_valid_numbers(item, f"{field}.{key}")
    elif isinstance(value, list):
        for item in value:
            require_valid_numbers(item, field)
    elif isinstance(value, int) and not isinstance(value, bool) and value < 1:
        raise InputError(field, f"is {value}; give 1 or more")
    elif isinstance(value, float) and not 0 <= value <= torch.finfo(torch.float32).max:
        raise InputError(field, f"is {value}; give a finite number of 0 or more")
    elif isinstance(value, float) and field.endswith(BELOW_ONE) and value >= 1:
        raise InputError(field, f"is {value}; give 0 or more, and less than 1")
    elif isinstance(value, float) and field.endswith(AT_MOST_ONE) and value > 1:
        raise InputError(field, f"is {value}; give 0 to 1")
    elif isinstance(value, float) and field.endswith(MORE_THAN_ZERO) and value == 0:
        raise InputError(field, f"is {value}; give more than 0")


def require_divisible(config: RunConfig, size: int) -> None:
    """An error unless so many processes can divide the steps of the run."""
    require_images(config.batch, size)
    if size > 1 and config.compile == "on":
        raise InputError("compile", f"is on, but the run has {size} processes; compile needs 1, give auto")


def open_run(config: RunConfig, out: Path, kind: dict[str, str]) -> tuple[Compute, Run]:
    """The device of a config whose defaults are filled in, and its run folder: new, or of the same configuration."""
    processes = start_processes(config.devices, config.device, config.batch)
    require_divisible(config, processes.size)
    fabric, run = make_fabric(config.device, config.precision, processes.local_rank), Run(out, processes)
    processes.from_first(lambda: run.start({**kind, **to_json(config)}))
    return fabric, run


def open_stream(
    config: RunConfig,
    task: Task,
    fabric: Compute,
    transported: tuple[Tensor, Tensor] | None = None,
    held_out: Tensor | None = None,
    strong_counterfactuals: float | None = None,
    usable: tuple[list[int], list[int]] | None = None,
) -> Stream:
    """The batches of a run: with the counterfactuals of both domains' images if there are any, without the source
    images that are held out. `strong_counterfactuals` asks for strong views, and is the share of them that start from a
    counterfactual, by one of the `usable` mechanisms of each domain."""
    strong = None
    if strong_counterfactuals is not None:
        strong = Strong(strength_of(config.data), strong_counterfactuals, usable)
    options = {"batch": config.batch, "seed": config.seed, "view": config.data.view, "device": fabric.device}
    return Stream(*task, **options, transported=transported, held_out=held_out, strong=strong)


def prepare_learner(fabric: Compute, learner: Learner, config: RunConfig, processes: Processes = ALONE) -> None:
    """Moves the learner to the device; on a GPU in channels-last memory format and, for a long run, compiled.

    With several processes, it is made to divide its work among them instead.
    """
    fabric.to_device(learner)
    on_gpu = fabric.device.type == "cuda"
    if on_gpu:
        learner.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    if processes.size > 1:
        learner.divide(processes)
        return
    long_enough = on_gpu and config.schedule.steps >= learner.min_steps_to_compile
    if config.compile == "on" or (config.compile == "auto" and long_enough):
        learner.accelerate()
