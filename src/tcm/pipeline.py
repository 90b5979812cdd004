"""Both stages in one run (TCM Algorithm 1): mechanisms, their counterfactuals, and the classifier."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from tcm.classifier.train import TrainConfig, train_classifier
from tcm.data.task import DataConfig, Task, load_task
from tcm.errors import InputError, printable
from tcm.mechanisms.bank import BankConfig
from tcm.mechanisms.load import TrainedMechanisms, load_mechanisms
from tcm.mechanisms.train import MechanismsConfig, bank_config, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.methods import DEFAULT
from tcm.methods.tcm.tcm import TCMConfig
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device, Precision
from tcm.training.run_folder import Run


@dataclass(frozen=True, kw_only=True)
class StageOne:
    """The mechanisms."""

    steps: int | None = None
    """Training steps. Default: 50000, digits 500."""
    batch: int = 8
    """Images of each domain in a step."""
    k: int | Literal["auto"] = 4
    """Number of mechanisms. auto: start with 8 and drop those that are unused."""
    bank: BankConfig = field(default_factory=BankConfig)


@dataclass(frozen=True, kw_only=True)
class StageTwo:
    """The classifier."""

    steps: int | None = None
    """Training steps. Default: 10000, digits 600."""
    batch: int = 32
    """Images of each domain in a step."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    method: TCMConfig = field(default_factory=TCMConfig)


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """A run of both stages."""

    data: DataConfig = field(default_factory=DataConfig)
    seed: int = 0
    """Seed of all random choices."""
    device: Device = "auto"
    """auto: the GPU if there is one."""
    precision: Precision = "auto"
    """auto: bf16 on a GPU that supports it, fp32 otherwise."""
    mechanisms: StageOne = field(default_factory=StageOne)
    classifier: StageTwo = field(default_factory=StageTwo)

    @classmethod
    def for_images(cls, small: bool) -> "FitConfig":
        """The default settings; `small` is for images below 64 pixels and their small networks."""
        return cls(
            mechanisms=StageOne(bank=bank_config("paper", small)),
            classifier=StageTwo(method=TCMConfig.for_images(small)),
        )


class Stages(NamedTuple):
    """The folders of a fitted model."""

    mechanisms: Path
    classifier: Path


class Fit(NamedTuple):
    """The folders of a fitted model, and the data and mechanisms that were loaded for it."""

    stages: Stages
    task: Task | None  # None if everything was finished already
    trained: TrainedMechanisms | None


def fit_pipeline(config: FitConfig, out: Path, quiet: bool = False) -> Fit:
    """Runs both stages in subfolders of `out`, or continues them (TCM Algorithm 1)."""
    stages = Stages(out / "mechanisms", out / "classifier")
    one, two = stage_configs(config, stages)
    with in_stage("classifier", StageTwo):  # checks stage 2 before stage 1 runs
        resolved = two.resolved()
        task = None if Run(stages.classifier).finished else load_task(resolved.data, quiet)
        if task:
            require_batch(resolved, task)
    with in_stage("mechanisms", StageOne):
        train_mechanisms(one, stages.mechanisms, quiet, task)
        trained = load_mechanisms(stages.mechanisms) if task else None
        if task:
            transport(stages.mechanisms, device=config.device, quiet=quiet, task=task, trained=trained)
    if trained:
        trained.bank.to("cpu", memory_format=torch.contiguous_format)  # pyright: ignore[reportCallIssue]
    with in_stage("classifier", StageTwo):
        train_classifier(DEFAULT, two, stages.classifier, quiet, task, trained)
    return Fit(stages, task, trained)


def stage_configs(config: FitConfig, stages: Stages) -> tuple[MechanismsConfig, TrainConfig[TCMConfig]]:
    """The configs of the runs of both stages."""
    common = {name: getattr(config, name) for name in ("data", "seed", "device", "precision")}
    first, second = config.mechanisms, config.classifier
    one = MechanismsConfig(**common, steps=first.steps, batch=first.batch, k=first.k, bank=first.bank)
    two = TrainConfig[TCMConfig](
        **common,
        steps=second.steps,
        batch=second.batch,
        backbone=second.backbone,
        method=second.method,
        mechanisms=stages.mechanisms,
    )
    return one, two


@contextmanager
def in_stage(stage: str, config: type[StageOne | StageTwo]) -> Iterator[None]:
    """Errors name the fields of `FitConfig`: `classifier.batch` in place of `batch`."""

    def rename(field: str) -> str:
        return f"{stage}.{field}" if field.split(".")[0] in config.__dataclass_fields__ else field

    try:
        yield
    except InputError as error:
        raise error.renamed(rename) from error


def require_batch(config: TrainConfig[Any], task: Task) -> None:
    """An error if a domain has fewer images than a batch."""
    for store in task:
        if len(store) < config.batch:
            found = f"is {config.batch}, but {printable(store.name)} has {len(store)} images"
            raise InputError("batch", f"{found}; lower it or add images")
