"""The settings of a suite, and the paper's protocol, which gives the defaults."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from tcm.data.benchmarks import benchmark_named
from tcm.data.domains import TargetLabels
from tcm.data.task import DataConfig
from tcm.mechanisms.train import Form
from tcm.methods import METHODS, MethodConfig
from tcm.methods.baseline import BaselineConfig
from tcm.methods.mcd import MCDConfig
from tcm.methods.mdd import MDDConfig
from tcm.methods.method import Recipe, RecipeName
from tcm.methods.tcm.paper import PaperConfig
from tcm.methods.tcm.release import ReleaseConfig
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device

DIGITS = "digits"
MECHANISMS: Form = "paper"  # the form of stage 1
QUICK = 20  # a quick suite trains 1/20 of the steps


class Protocol(NamedTuple):
    """How the paper trains on a benchmark (TCM Section 4.1), and how the authors of a method train it there."""

    steps: int  # of stage 2
    epochs: int  # of stage 1, over the larger domain
    k: int
    batch: int  # of stage 1, from the authors' scripts
    methods: Mapping[str, MethodConfig] = MappingProxyType({})  # settings that differ from those of a single run
    steps_of: Mapping[str, int] = MappingProxyType({})  # methods with another number of steps


def mcd_settings(trade_off: float) -> MCDConfig:
    """The optimisers of MCD's authors, and a weight that fits the number of classes: both as in TLLib."""
    recipe = Recipe(lr=1e-3, pretrained_lr=1.0, weight_decay=5e-4, bottleneck=1024)
    return MCDConfig(recipe, trade_off=trade_off, decay=False, backbone_momentum=0.0)


# The rates of the authors' scripts for ImageCLEF-DA: 1e-3 for the backbone and 1e-2 for new layers.
FASTER = Recipe(lr=1e-2)
# Office-31 is not in the paper. It has the protocol of Office-Home.
PROTOCOLS = {
    "Office-Home": Protocol(
        10_000,
        200,
        4,
        4,
        methods={"mcd": mcd_settings(30.0), "mdd": MDDConfig(Recipe(lr=0.004, bottleneck=2048), hidden=2048)},
        steps_of={"tcm": 4_000, "tcm-control": 4_000, "tcm-release": 15_000},
    ),
    "ImageCLEF-DA": Protocol(
        3_000,
        200,
        5,
        8,
        methods={
            "mcd": mcd_settings(1.0),
            "baseline": BaselineConfig(FASTER),
            "tcm-paper": PaperConfig(FASTER),
            "tcm-release": ReleaseConfig(FASTER),
        },
    ),
    "VisDA-2017": Protocol(10_000, 40, 4, 8, methods={"mcd": mcd_settings(1.0)}),
    "Office-31": Protocol(10_000, 200, 4, 4, methods={"mcd": mcd_settings(10.0)}),
}
DIGITS_STEPS, DIGITS_MECHANISM_STEPS, DIGITS_K = 180, 200, 4
DIGITS_KS = (1, 2, 3, 5, 7, 10)  # of Table 4


@dataclass(frozen=True, kw_only=True)
class SuiteMechanisms:
    """Stage 1 of the suite. One run per pair of domains serves both directions, all methods and all seeds."""

    steps: int | None = None
    """Training steps. Default: the number of epochs in the paper; digits 200."""
    batch: int | None = None
    """Images of each domain in a step. Default: as in the authors' scripts."""
    crop: int | None = None
    """Side of the training crops, in pixels. Default: as in stage 2."""
    lr: float | None = None
    """Adam's learning rate for mechanisms and critics. Default: as in tcm mechanisms."""
    warmup: int | None = None
    """Steps before the competition starts. Default: 8000, small images 200, at most half of the steps."""
    watch: int = 0
    """Images of each domain for the Frechet distances that every evaluation writes to metrics.jsonl. 0: no distances.
    They are measured in the features of `backbone`; the digits have their own network."""


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """The settings of a suite: which runs, and how they train."""

    root: Path | None = None
    """Folder of the benchmark, with one subfolder per domain. The digits need none."""
    tasks: str = "all"
    """Tasks, separated by commas: A2C,R2C. The digits have only one task."""
    methods: str = "all"
    """Methods, separated by commas: erm,dann,tcm."""
    seeds: int = 3
    """Number of runs of each task and method. Their seeds are `seed`, `seed` + 1, ..."""
    seed: int = 0
    """The first seed."""
    k: int | None = None
    """Number of mechanisms. Default: as in the paper."""
    ks: str | None = None
    """Further numbers of mechanisms for tcm, separated by commas. Default: none; digits 1, 2, 3, 5, 7, 10."""
    quick: bool = False
    """Train only a twentieth of the steps, to check that everything works."""
    steps: int | None = None
    """Training steps of stage 2. Default: as in the paper; on office-home tcm and tcm-control 4000, tcm-release
    15000; digits 180."""
    recipe: RecipeName = "common"
    """common: the paper's protocol for all methods. authors: the settings, steps and batch of each method's authors on
    Office-Home, as far as they differ."""
    batch: int | None = None
    """Images of each domain in a step of stage 2. Default: 32, or as in the recipe."""
    save_every: int = 500
    """Steps between checkpoints."""
    evaluate_every: int | None = None
    """Steps between evaluations. Default: a tenth of the steps; digits a third."""
    held_out: float = 0.0
    """Share of the source images of each class that training does not see, for the selection scores dev and source."""
    size: int | None = None
    """Side of the stored images, in pixels. Default: 256, digits 32."""
    crop: int | None = None
    """Side of the crops, in pixels. Crops below 64 pixels use small networks. Default: 7/8 of the size, digits 32."""
    area: float | None = None
    """Crop training images of stage 2 with a random size, at least this share of the area, and resize to the crop."""
    target_labels: TargetLabels = "auto"
    """ignore: read the target domains without their labels."""
    on_bad_image: Literal["stop", "skip"] = "stop"
    """What to do with an image that cannot be read."""
    cache: Path | None = None
    """Folder for packed images. Default: tcm in the user's cache folder."""
    device: Device = "auto"
    """auto: the GPU if there is one."""
    devices: int = 1
    """Number of GPUs, or on a CPU of processes, that divide the images of each step of a run."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the networks. auto: on a GPU, if a run is long enough to win back the minute that it takes."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    mechanisms: SuiteMechanisms = field(default_factory=SuiteMechanisms)


def has_small_images(benchmark: str, config: SuiteConfig) -> bool:
    """Whether the images of the suite are below 64 pixels, so that small networks suit them."""
    return DataConfig(DIGITS if benchmark == DIGITS else None, size=config.size, crop=config.crop).is_small


def method_settings(small: bool, benchmark: str | None = None, recipe: RecipeName = "common") -> Any:
    """The default settings of all methods on a benchmark: an instance of a dataclass with one field per method.

    `small` is for images below 64 pixels. The settings of a protocol are for its photographs.
    """
    defaults = {name: config.with_recipe(recipe, small) for name, config in METHODS.items()}
    if benchmark not in (None, DIGITS) and not small:
        defaults |= PROTOCOLS[benchmark_named(benchmark).name].methods
    fields: list[Any] = [
        (field_of(name), type(default), field(default_factory=lambda default=default: default))
        for name, default in defaults.items()
    ]
    return dataclasses.make_dataclass("MethodSettings", fields, frozen=True, kw_only=True)()


def field_of(method: str) -> str:
    """The name of the field of `method_settings` for a method."""
    return method.replace("-", "_")


def with_default(value: int | None, default: int) -> int:
    """The value of a setting, or its default if it is None. A 0 is kept: it is reported as wrong."""
    return default if value is None else value
