"""Both stages in one go (Algorithm 1): mechanisms, the counterfactuals they make, and the classifier."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tcm.classifier.train import TrainConfig, train_classifier
from tcm.data.task import DataConfig, load_task
from tcm.errors import InputError, printable
from tcm.mechanisms.bank import BankConfig
from tcm.mechanisms.train import PRESETS as BANKS
from tcm.mechanisms.train import MechanismsConfig, train_mechanisms
from tcm.mechanisms.train import Preset as BankPreset
from tcm.mechanisms.transport import transport
from tcm.methods import Preset
from tcm.methods.tcm.tcm import TCMConfig
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device
from tcm.training.run_folder import Run

# Stage 1's form for each of stage 2's. The default of stage 2 gains most from mechanisms that each go all the way to
# the other domain, as the paper's do. Those of stage 1's own default share the way: they tell factors apart.
BANK_OF: dict[Preset, BankPreset] = {"default": "paper", "paper": "paper", "release": "release", "control": "paper"}


@dataclass(frozen=True, kw_only=True)
class StageOne:
    """The mechanisms."""

    steps: int | None = None
    """Training steps. Default: 50000, digits 500."""
    batch: int = 8
    """Images of each domain in a step."""
    k: int | Literal["auto"] = 4
    """Number of mechanisms. auto: start with 8 and drop those that prove to be of no use."""
    bank: BankConfig = field(default_factory=lambda: BANKS[BANK_OF["default"]])


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
    preset: Preset = "default"
    """Where the values of --mechanisms.bank and --classifier.method start."""
    seed: int = 0
    """Every random choice follows from it."""
    device: Device = "auto"
    """auto: the GPU if there is one."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on a GPU that has it, fp32 otherwise."""
    mechanisms: StageOne = field(default_factory=StageOne)
    classifier: StageTwo = field(default_factory=StageTwo)


class Stages(NamedTuple):
    """The folders of a fitted model."""

    mechanisms: Path
    classifier: Path


def fit_pipeline(config: FitConfig, out: Path, quiet: bool = False) -> tuple[Stages, bool]:
    """Runs what is left to do of both stages below `out`; their folders, and whether anything was left."""
    stages = Stages(out / "mechanisms", out / "classifier")
    common = {name: getattr(config, name) for name in ("data", "seed", "device", "precision")}
    first, second, preset = config.mechanisms, config.classifier, BANK_OF[config.preset]
    one = MechanismsConfig(**common, preset=preset, steps=first.steps, batch=first.batch, k=first.k, bank=first.bank)
    two = TrainConfig[TCMConfig](
        **common,
        preset=config.preset,
        steps=second.steps,
        batch=second.batch,
        backbone=second.backbone,
        method=second.method,
        mechanisms=stages.mechanisms,
    )
    with told_of("classifier", StageTwo):  # a mistake in the second stage is told before the first one runs
        settled = two.resolved()
        if not Run(stages.mechanisms).finished:
            require_batch(settled, quiet)
    with told_of("mechanisms", StageOne):
        done = [train_mechanisms(one, stages.mechanisms, quiet)]
        done.append(transport(stages.mechanisms, device=config.device, quiet=quiet))
    with told_of("classifier", StageTwo):
        done.append(train_classifier("tcm", two, stages.classifier, quiet))
    return stages, any(done)


@contextmanager
def told_of(stage: str, options: type[StageOne | StageTwo]) -> Iterator[None]:
    """Mistakes in a stage are told by the options of both: --classifier.batch for --batch."""
    names = "|".join(options.__dataclass_fields__)
    try:
        yield
    except InputError as error:
        raise InputError(re.sub(rf"(?<!\S)--({names})\b", rf"--{stage}.\1", str(error))) from error


def require_batch(config: TrainConfig[Any], quiet: bool) -> None:
    """An error unless both domains have the images of a batch."""
    for store in load_task(config.data, quiet):
        if len(store) < config.batch:
            found = f"--batch is {config.batch}, but {printable(store.name)} has {len(store)} images"
            raise InputError(f"{found}; lower it or add images")
