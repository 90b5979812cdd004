"""A whole run: data, method, training, evaluation, and the folder that holds the result."""

import dataclasses
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import torch
from lightning_fabric import Fabric

from tcm.config import from_json, to_json
from tcm.data.stream import Stream, derived_seed
from tcm.data.task import DataConfig, load_task
from tcm.errors import InputError
from tcm.evaluate import accuracies, probabilities
from tcm.methods import METHODS, MethodConfig
from tcm.methods.method import Method, Problem
from tcm.nn.backbone import BackboneConfig
from tcm.outcome import write_outcome
from tcm.run import Run
from tcm.train import Rhythm, fit

M = TypeVar("M", bound=MethodConfig)
WORTH_COMPILING = 4000  # steps after which compiling has paid: 17 ms saved a step against 50 s, on an H200


@dataclass(frozen=True)
class TrainConfig(Generic[M]):
    """A training run."""

    method: M
    data: DataConfig = field(default_factory=DataConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    steps: int | None = None
    """Training steps. Default: 10000, digits 600."""
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
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: the GPU if there is one."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on a GPU that has it, fp32 otherwise."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the networks. auto: on a GPU, when the run is long enough (4000 steps) to repay the minute it takes."""

    def resolved(self) -> "TrainConfig[M]":
        """This config with every default filled in; mistakes are found here, before anything is written."""
        data = self.data.resolved()
        steps = self.steps if self.steps is not None else (600 if data.is_digits else 10000)
        every = self.evaluate_every if self.evaluate_every is not None else max(steps // 10, 1)
        counts = {"steps": steps, "batch": self.batch, "log-every": self.log_every, "save-every": self.save_every}
        for name, value in {**counts, "evaluate-every": every}.items():
            least = 2 if name == "batch" else 1  # batch normalisation has no spread to go by in a single image
            if value < least:
                raise InputError(f"--{name} is {value}; give {least} or more")
        require_usable(to_json(self.method), "--method")
        backbone = self.backbone.resolved(small_images=data.crop is not None and data.crop < 64)
        assert data.crop is not None
        backbone.require_crop(data.crop)
        return dataclasses.replace(self, data=data, backbone=backbone, steps=steps, evaluate_every=every)

    @property
    def rhythm(self) -> Rhythm:
        """How long and how often (of a resolved config)."""
        assert self.steps is not None
        assert self.evaluate_every is not None
        return Rhythm(self.steps, self.log_every, self.evaluate_every, self.save_every)


def require_usable(value: Any, option: str) -> None:
    """Refuses a method's numbers that no method can use: not finite, negative, or a width of 0."""
    if isinstance(value, dict):
        for key, item in value.items():
            require_usable(item, f"{option}.{key.replace('_', '-')}")
    elif isinstance(value, int) and not isinstance(value, bool) and value < 1:
        raise InputError(f"{option} is {value}; give 1 or more")
    elif isinstance(value, float) and not 0 <= value <= torch.finfo(torch.float32).max:
        raise InputError(f"{option} is {value}; give a number from 0 up")


class Trained(NamedTuple):
    """A finished run, ready to predict."""

    name: str  # of the method
    config: TrainConfig[Any]
    classes: tuple[str, ...]
    method: Method


def make_fabric(device: str, precision: str) -> Fabric:
    """Lightning Fabric on the device and in the precision asked for."""
    there = torch.cuda.is_available()
    if device == "cuda" and not there:
        raise InputError("--device cuda: no GPU is available here; use --device cpu or auto")
    accelerator = "cuda" if there and device != "cpu" else "cpu"
    if precision == "auto":
        precision = "bf16" if accelerator == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    torch.set_float32_matmul_precision("high" if accelerator == "cuda" else "highest")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Fabric remarks on hardware that is deliberately not used
        return Fabric(accelerator=accelerator, devices=1, precision="bf16-mixed" if precision == "bf16" else "32-true")


def train(name: str, config: TrainConfig[Any], out: Path, quiet: bool = False) -> bool:
    """Trains the method `name` in the folder `out`, from where it stopped; False if it was finished already."""
    config = config.resolved()
    fabric = make_fabric(config.device, config.precision)
    run = Run(out)
    run.start({"method_name": name, **to_json(config)})
    if run.finished:
        return False
    try:
        task = load_task(config.data, quiet)
        stream = Stream(
            task.source,
            task.target,
            batch=config.batch,
            seed=config.seed,
            view=config.data.view,
            device=fabric.device,
        )
        torch.manual_seed(derived_seed(config.seed, "weights"))
        method = config.method.build(Problem(len(task.source.classes), config.backbone.build()))
    except InputError:
        run.take_back_start()
        raise
    run.write_environment(str(fabric.device))
    place(fabric, method, config)

    def evaluate() -> dict[str, float]:
        crop = config.data.view.crop
        source, target = (probabilities(fabric, method, store.images, crop) for store in task)
        return {**accuracies("source", source, task.source), **accuracies("target", target, task.target)}

    title = f"{name} {task.source.name} → {task.target.name}"
    fit(
        fabric, method, stream, run, rhythm=config.rhythm, seed=config.seed, evaluate=evaluate, title=title, quiet=quiet
    )
    write_outcome(run, fabric, name, method.eval(), task, crop=config.data.view.crop, step=config.rhythm.steps)
    about = {"method_name": name, "config": to_json(config), "classes": task.source.classes}
    run.save_model(method.state_dict(), about)
    return True


def place(fabric: Fabric, method: Method, config: TrainConfig[Any]) -> None:
    """Moves the method to the device; on a GPU in channels-last memory and, for a long run, compiled."""
    fabric.to_device(method)
    on_gpu = fabric.device.type == "cuda"
    if on_gpu:
        method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    if config.compile == "on" or (config.compile == "auto" and on_gpu and config.rhythm.steps >= WORTH_COMPILING):
        for part in method.compiled_parts():
            # Replays each step as one CUDA graph: launched one by one, the kernels of a step keep a GPU waiting.
            part.compile(mode="reduce-overhead" if on_gpu else None)


def load_trained(folder: Path) -> Trained:
    """The model of a finished run, from its model.safetensors alone, on the CPU and in evaluation mode."""
    tensors, about = Run(folder).load_model()
    name = about.get("method_name", "")
    if name not in METHODS:
        raise InputError(f'{folder} holds a model of the unknown method "{name}"; it has {", ".join(METHODS)}')
    config = from_json(TrainConfig[METHODS[name]], about["config"], str(folder))
    classes = tuple(about["classes"])
    method = config.method.build(Problem(len(classes), config.backbone.build(initialise=False)))
    try:
        method.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{folder} holds weights that do not fit its configuration; train it again") from error
    return Trained(name, config, classes, method.eval())


def evaluate_run(folder: Path, device: str = "auto", quiet: bool = False) -> dict[str, Any]:
    """Evaluates a finished run again on its own data and writes the result into its folder."""
    trained = load_trained(folder)
    config = trained.config
    fabric = make_fabric(device, config.precision)
    fabric.to_device(trained.method)
    task = load_task(config.data, quiet)
    if task.source.classes != trained.classes:
        now, then = (", ".join(names) for names in (task.source.classes, trained.classes))
        found = f"the classes of {task.source.name} are {now}, but {folder} was trained on {then}"
        raise InputError(f"{found}; restore the data or train again in a new --out")
    return write_outcome(
        Run(folder), fabric, trained.name, trained.method, task, crop=config.data.view.crop, step=config.rhythm.steps
    )
