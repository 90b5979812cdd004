"""The settings of a fit. What is left out is filled in by `plan.py`, from the images and the device."""

from dataclasses import dataclass, field
from typing import Literal

from tcm.data.task import DataConfig
from tcm.mechanisms.bank import BankConfig
from tcm.mechanisms.train import bank_config
from tcm.methods.tcm.tcm import TCMConfig
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device, Precision


@dataclass(frozen=True, kw_only=True)
class StageOne:
    """Stage 1, the mechanisms. It is used only if k is more than 0."""

    steps: int | None = None
    """Training steps of stage 1. Default: small images 250, photographs 100 epochs, from 2000 to 50000."""
    batch: int | None = None
    """Images of each domain in a step of stage 1. Default: 8, or fewer if a domain has fewer."""
    bank: BankConfig = field(default_factory=BankConfig)


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """From two folders to a classifier: source only, the default TCM, and a choice between them."""

    data: DataConfig = field(default_factory=DataConfig)
    steps: int | None = None
    """Training steps of each method. Default: small images 20 epochs, from 600 to 6000; photographs 30 epochs, from
    1000 to 10000; 1 if frozen."""
    k: int | Literal["auto"] | None = None
    """Number of mechanisms of stage 1; 0: no stage 1. auto: start with 8 and drop those that are unused. Default: 4 for
    small images. Photographs 0: there counterfactuals have not helped so far, and stage 1 takes most of the time."""
    frozen: bool | None = None
    """Do not train the backbone: a linear classifier and self-training on its pretrained features, in minutes on a CPU.
    Default: for photographs if there is no GPU."""
    compare: bool = False
    """Also train three rivals: cdan-e, mcc and fixmatch."""
    seed: int = 0
    """Seed of all random choices."""
    batch: int | None = None
    """Images of each domain in a step. Default: 32 at most."""
    held_out: float | None = None
    """Share of the source images of each class that training does not see, so that accuracy can be estimated. Default:
    0.1, or 0.2 with fewer than 1000 source images."""
    save_every: int = 500
    """Steps between checkpoints."""
    device: Device = "auto"
    """auto: the GPU if there is one."""
    devices: int = 1
    """Number of GPUs, or on a CPU of processes, that divide the images of each training step. Not needed with torchrun
    or srun."""
    precision: Precision = "auto"
    """auto: bf16 on a GPU that supports it, fp32 otherwise."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    method: TCMConfig = field(default_factory=TCMConfig)
    mechanisms: StageOne = field(default_factory=StageOne)

    @classmethod
    def for_images(cls, small: bool) -> "FitConfig":
        """The default settings; `small` is for images below 64 pixels and their small networks."""
        return cls(method=TCMConfig.for_images(small), mechanisms=StageOne(bank=bank_config("paper", small)))
