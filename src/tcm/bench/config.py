"""The settings of a suite, and the paper's protocol that they start from."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tcm.data.domains import TargetLabels
from tcm.data.task import DataConfig
from tcm.mechanisms.train import Form
from tcm.methods import METHODS, MethodConfig
from tcm.methods.baseline import BaselineConfig
from tcm.methods.method import Recipe
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device

DIGITS = "digits"
MECHANISMS: Form = "paper"  # the form of stage 1
QUICK = 20  # how many times shorter a quick suite is


class Protocol(NamedTuple):
    """How the paper trains on a benchmark (Section 4.1)."""

    steps: int  # of stage 2
    epochs: int  # of stage 1, over the larger domain
    k: int
    batch: int  # of stage 1: the authors' scripts


# Office-31 is not in the paper: it is trained as Office-Home is.
PROTOCOLS = {
    "Office-Home": Protocol(10_000, 200, 4, 4),
    "ImageCLEF-DA": Protocol(3_000, 200, 5, 8),
    "VisDA-2017": Protocol(10_000, 40, 4, 8),
    "Office-31": Protocol(10_000, 200, 4, 4),
}
DIGITS_STEPS, DIGITS_MECHANISM_STEPS, DIGITS_K = 180, 200, 4
DIGITS_KS = (1, 2, 3, 5, 7, 10)  # of Table 4
# Settings of methods in which a suite on small images differs from a single run: in so few steps the usual
# discriminators drive the small network's unbounded features to infinity.
SMALL_SETTINGS: dict[str, MethodConfig] = {"baseline": BaselineConfig(recipe=Recipe(), input="bottleneck", hidden=128)}


@dataclass(frozen=True, kw_only=True)
class SuiteMechanisms:
    """Stage 1 of the suite: one run for a pair of domains serves both directions, all methods and all seeds."""

    steps: int | None = None
    """Training steps. Default: the paper's epochs; digits 200."""
    batch: int | None = None
    """Images of each domain in a step. Default: that of the authors' scripts."""
    k: int | None = None
    """Number of mechanisms. Default: the paper's."""
    crop: int | None = None
    """Side of the square that training cuts out. Default: as in stage 2."""
    lr: float | None = None
    """Adam's learning rate, of mechanisms and critics. Default: that of the form."""
    warmup: int | None = None
    """Steps before the competition starts. Default: that of the form."""
    watch: int = 0
    """Images of each domain on which every evaluation measures Frechet distances, in the features of `backbone` or, of
    digits, their own reader. They stand in metrics.jsonl. 0: none."""


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """What to run."""

    root: Path | None = None
    """Folder of the benchmark. The digits need none."""
    tasks: str = "all"
    """Tasks in any usual spelling, with commas between them: A2C,R2C. The digits are one task."""
    methods: str = "all"
    """Methods with commas between them."""
    seeds: int = 3
    """Runs of each task and method: seeds 0, 1, ..."""
    ks: str | None = None
    """More numbers of mechanisms for tcm, with commas between them. Default: none; digits 1,2,3,5,7,10."""
    quick: bool = False
    """Train a twentieth of all steps, to see that everything works."""
    steps: int | None = None
    """Training steps of stage 2. Default: the paper's; digits 180."""
    batch: int = 32
    """Images of each domain in a step of stage 2."""
    evaluate_every: int | None = None
    """Steps between evaluations. Default: a tenth of the run; digits a third."""
    held_out: float = 0.0
    """Share of each class's source images that training never sees, for the selection scores that look at them."""
    size: int | None = None
    """Side to which images are resized for the store. Default: 256, digits 32."""
    crop: int | None = None
    """Side of the square that is cut out; below 64 networks are small. Default: 7/8 of the size, digits all of it."""
    area: float | None = None
    """Cut training images of stage 2 out as parts of random size, at least this share of the area, resized."""
    target_labels: TargetLabels = "auto"
    """ignore: read the targets without their labels."""
    on_bad_image: Literal["stop", "skip"] = "stop"
    """What to do with an image that cannot be read."""
    cache: Path | None = None
    """Where packed images are kept. Default: tcm in the user's cache folder."""
    device: Device = "auto"
    """auto: the GPU if there is one."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the networks. auto: on a GPU, when a run is long enough to repay the minute it takes."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    mechanisms: SuiteMechanisms = field(default_factory=SuiteMechanisms)


def has_small_images(benchmark: str, config: SuiteConfig) -> bool:
    """Whether small networks suit the images of the suite."""
    return DataConfig(DIGITS if benchmark == DIGITS else None, size=config.size, crop=config.crop).is_small


def method_settings(small: bool) -> Any:
    """A dataclass with a field for the config of every method; `small` is for images below 64 pixels."""
    defaults = {name: config.for_images(small) for name, config in METHODS.items()}
    if small:
        defaults |= SMALL_SETTINGS
    fields: list[Any] = [
        (field_of(name), type(default), field(default_factory=lambda default=default: default))
        for name, default in defaults.items()
    ]
    return dataclasses.make_dataclass("MethodSettings", fields, frozen=True, kw_only=True)()


def field_of(method: str) -> str:
    """The field of `method_settings` that holds the settings of a method."""
    return method.replace("-", "_")
