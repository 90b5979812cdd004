"""The stages of a fit, with the defaults that depend on the images and the device."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from tcm.classifier.train_config import TrainConfig
from tcm.config import to_json
from tcm.data.domains import Domain
from tcm.data.task import SMALL, DataConfig, Task, read_domains
from tcm.errors import InputError, printable
from tcm.mechanisms.train import MechanismsConfig
from tcm.methods import METHODS, MethodConfig
from tcm.methods.erm import ERMConfig
from tcm.methods.self_training import SelfTrainingConfig
from tcm.nn.backbone import BackboneConfig
from tcm.pipeline.config import FitConfig
from tcm.training.device import Precision, computes_bf16, has_accelerator

SOURCE_ONLY, WITH_MECHANISMS, WITHOUT = "erm", "tcm", "tcm-control"
FROZEN = (SOURCE_ONLY, "self-training")
RIVALS = ("cdan-e", "mcc", "fixmatch")
STAGE_ONE = "mechanisms"  # the name of its folder
BATCH, MECHANISM_BATCH, SMALL_K = 32, 8, 4
# Steps: epochs over the larger domain, and limits. The digits (900 images) were measured with 600 steps and 250 of
# stage 1, Office-Home (2,400 to 4,400 images) with 4,000.
SMALL_STEPS, STEPS, MECHANISM_STEPS = (20, 600, 6_000), (30, 1_000, 10_000), (100, 2_000, 50_000)
SMALL_MECHANISM_STEPS = 250
PEEK = 50  # images of each domain whose sizes are read


@dataclass(frozen=True)
class Plan:
    """All that a fit has decided before its first step. It is kept in fit.json, so that a resumed fit is the same."""

    data: DataConfig
    methods: tuple[str, ...]  # source only first
    frozen: bool
    k: int | Literal["auto"]
    steps: int
    batch: int
    mechanism_steps: int
    mechanism_batch: int
    held_out: float
    precision: Precision = "auto"

    @property
    def has_stage_one(self) -> bool:
        """Whether mechanisms are trained."""
        return self.k != 0

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, in their order."""
        first, *others = self.methods
        return (first, *([STAGE_ONE, "counterfactuals"] if self.has_stage_one else []), *others)


def data_for_fit(data: DataConfig) -> DataConfig:
    """The config with a size and crops that suit the images, where it names none."""
    if data.is_digits:
        return data
    if data.size is not None:
        return data_for_sides(data, ())
    return data_for_sides(data, [min(pair) for domain in read_domains(data) for pair in image_sizes(domain)])


def data_for_sides(data: DataConfig, sides: Sequence[int]) -> DataConfig:
    """The config with a size and crops that suit images of these shorter sides, where it names none.

    Images below 64 pixels keep about their size, and are cropped as the built-in digits are.
    """
    size = data.size
    if size is None:
        side = statistics.median(sides or [SMALL])
        size = min(max(32, math.ceil(side / 8) * 8), SMALL - 8) if side < SMALL else None
    if size is None or size >= SMALL:
        return data
    crop = size if data.crop is None else data.crop
    shift = size // 16 if data.shift is None and data.area is None else data.shift
    return dataclasses.replace(data, size=size, crop=crop, shift=shift)


def image_sizes(domain: Domain) -> list[tuple[int, int]]:
    """Width and height of some images of the domain, from their headers; without those that cannot be read."""
    sizes = []
    for path in domain.paths[:: max(1, len(domain.paths) // PEEK)]:
        try:
            with Image.open(domain.root / path) as image:
                sizes.append(image.size)
        except Exception:  # unreadable images are reported when they are packed
            continue
    return sizes


def make_plan(config: FitConfig, task: Task) -> Plan:
    """The plan of a fit of these images, on the device of the config. Settings that contradict are errors."""
    data, small = config.data, config.data.is_small
    frozen = not small and not has_accelerator(config.device) if config.frozen is None else config.frozen
    k = (SMALL_K if small and not frozen else 0) if config.k is None else config.k
    require_consistent(config, frozen, k)
    rivals = RIVALS if config.compare else ()
    methods = FROZEN if frozen else (SOURCE_ONLY, *rivals, WITH_MECHANISMS if k else WITHOUT)
    images = max(map(len, task))
    held_out = (0.2 if len(task.source) < 1000 else 0.1) if config.held_out is None else config.held_out
    smallest = min(len(task.target), max(2, int((1 - held_out) * len(task.source)) - len(task.source.classes)))
    batch = min(BATCH, smallest) if config.batch is None else config.batch
    one = config.mechanisms
    one_batch = min(MECHANISM_BATCH, *map(len, task)) if one.batch is None else one.batch
    first = SMALL_MECHANISM_STEPS if small else epochs_in_steps(images, one_batch, *MECHANISM_STEPS)
    usual = 1 if frozen else epochs_in_steps(images, batch, *(SMALL_STEPS if small else STEPS))
    fast = frozen and config.precision == "auto" and computes_bf16(config.device)
    return Plan(
        whole_images(data, config.backbone) if frozen else data,
        methods,
        frozen,
        k,
        steps=usual if config.steps is None else config.steps,
        batch=batch,
        mechanism_steps=first if one.steps is None else one.steps,
        mechanism_batch=one_batch,
        held_out=held_out,
        # Features of a network that is not trained are as good in bf16, and sooner there.
        precision="bf16" if fast else config.precision,
    )


def whole_images(data: DataConfig, backbone: BackboneConfig) -> DataConfig:
    """The config without crops, if it names none and the network takes images of that size.

    A network that is not trained sees no random crops, so the borders of the images need not be cut off.
    """
    whole = data.resolved().size
    assert whole is not None
    if data.crop is not None or backbone.resolved(small_images=False).fixed_side() not in (None, whole):
        return data
    return dataclasses.replace(data, crop=whole)


def epochs_in_steps(images: int, batch: int, epochs: int, least: int, most: int) -> int:
    """The steps of so many epochs over these images, rounded to hundreds and kept within the limits."""
    return min(max(100 * round(epochs * images / max(batch, 1) / 100), least), most)


def require_consistent(config: FitConfig, frozen: bool, k: int | str) -> None:
    """An error if settings of a fit exclude each other."""
    if isinstance(k, int) and k < 0:
        raise InputError("k", f"is {k}; give 1 or more mechanisms, or 0 for no stage 1")
    if not frozen:
        return
    why = "" if config.frozen else ", the default for photographs without a GPU"
    reason = f"nothing is trained with `frozen`{why}"
    for name, given in (("k", bool(k)), ("compare", config.compare), ("steps", config.steps not in (None, 1))):
        if given:
            raise InputError(name, f"is not used: {reason}; leave it out, or set `frozen=False`")
    if config.data.is_small and config.backbone.name == "auto":
        raise InputError("frozen", "needs a pretrained network, which images below 64 pixels do not have; leave it out")
    if not config.backbone.pretrained and config.backbone.weights is None:
        raise InputError("frozen", "needs pretrained weights; leave out `backbone.pretrained=False`")


def method_settings(name: str, config: FitConfig, plan: Plan) -> MethodConfig:
    """The settings of a method of the plan."""
    if plan.frozen:
        return ERMConfig(frozen=True) if name == SOURCE_ONLY else SelfTrainingConfig()
    if name == WITH_MECHANISMS:
        return config.method
    kind = METHODS[name]
    if name != WITHOUT:
        return kind.for_images(plan.data.is_small)
    return kind(**{field.name: getattr(config.method, field.name) for field in dataclasses.fields(config.method)})


def train_config(name: str, config: FitConfig, plan: Plan, out: Path) -> TrainConfig[Any]:
    """The config of a method's run."""
    return TrainConfig(
        method=method_settings(name, config, plan),
        data=plan.data,
        steps=plan.steps,
        batch=plan.batch,
        seed=config.seed,
        held_out=plan.held_out,
        save_every=config.save_every,
        device=config.device,
        devices=config.devices,
        precision=plan.precision,
        backbone=config.backbone,
        mechanisms=out / STAGE_ONE if name == WITH_MECHANISMS else None,
    )


def mechanisms_config(config: FitConfig, plan: Plan) -> MechanismsConfig:
    """The config of the run of stage 1."""
    return MechanismsConfig(
        data=plan.data,
        steps=plan.mechanism_steps,
        batch=plan.mechanism_batch,
        k=plan.k,
        seed=config.seed,
        save_every=config.save_every,
        device=config.device,
        devices=config.devices,
        precision=plan.precision,
        bank=config.mechanisms.bank,
    )


def described(plan: Plan, task: Task) -> str:
    """The plan in one or two sentences."""
    source, target = (f"{printable(store.name)} ({len(store)} images)" for store in task)
    start = f"{source} → {target}, {len(task.source.classes)} classes, images of side {task.source.size}"
    if plan.frozen:
        return f"{start}. A linear classifier and self-training on pretrained features; no network is trained."
    about = f"{plan.k} mechanisms in {plan.mechanism_steps} steps" if plan.has_stage_one else "no mechanisms"
    return f"{start}. {', '.join(plan.methods)} with {plan.steps} steps each; {about}."


def given_json(config: FitConfig) -> dict[str, Any]:
    """The settings of a fit as fit.json keeps them."""
    return to_json(dataclasses.replace(config, data=config.data.resolved()))
