"""Both stages in one go (Algorithm 1): mechanisms, the counterfactuals they make, and the classifier."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tcm.classifier.train import TrainConfig, train_classifier
from tcm.data.task import DataConfig, load_task
from tcm.errors import InputError, printable
from tcm.mechanisms.bank import BankConfig
from tcm.mechanisms.train import MechanismsConfig, bank_config, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.methods import DEFAULT
from tcm.methods.tcm.tcm import TCMConfig
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device
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
    """Every random choice follows from it."""
    device: Device = "auto"
    """auto: the GPU if there is one."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on a GPU that has it, fp32 otherwise."""
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


def fit_pipeline(config: FitConfig, out: Path, quiet: bool = False) -> tuple[Stages, bool]:
    """Runs what is left to do of both stages below `out`; their folders, and whether anything was left."""
    stages = Stages(out / "mechanisms", out / "classifier")
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
    with in_stage("classifier", StageTwo):  # mistakes in the second stage are found before the first one runs
        settled = two.resolved()
        if not Run(stages.mechanisms).finished:
            require_batch(settled, quiet)
    with in_stage("mechanisms", StageOne):
        done = [train_mechanisms(one, stages.mechanisms, quiet)]
        done.append(transport(stages.mechanisms, device=config.device, quiet=quiet))
    with in_stage("classifier", StageTwo):
        done.append(train_classifier(DEFAULT, two, stages.classifier, quiet))
    return stages, any(done)


@contextmanager
def in_stage(stage: str, config: type[StageOne | StageTwo]) -> Iterator[None]:
    """Mistakes in the fields of a stage are reported in those of both: `classifier.batch` for `batch`."""

    def rename(field: str) -> str:
        return f"{stage}.{field}" if field.split(".")[0] in config.__dataclass_fields__ else field

    try:
        yield
    except InputError as error:
        raise error.renamed(rename) from error


def require_batch(config: TrainConfig[Any], quiet: bool) -> None:
    """An error unless both domains have the images of a batch."""
    for store in load_task(config.data, quiet):
        if len(store) < config.batch:
            found = f"is {config.batch}, but {printable(store.name)} has {len(store)} images"
            raise InputError("batch", f"{found}; lower it or add images")
