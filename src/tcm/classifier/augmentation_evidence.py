"""Which augmentations the source images allow: a quick classifier is asked whether it still recognises changed images.

A mirrored photograph shows the same object. A mirrored digit, letter or arrow is another one or none, and a classifier
that is trained on mirrored images learns to confuse them. The question is put to the source images, whose labels are
known; the target plays no part.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tcm.config import from_json, to_json
from tcm.data.augment import as_stored
from tcm.data.samples import strong_samples
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError, printable
from tcm.nn.backbone import Backbone
from tcm.progress import ProgressDisplay
from tcm.training.files import write_atomically
from tcm.training.source_probe import (
    FOLDS,
    GREY,
    SURE,
    Recognition,
    cross_validated,
    linear_probe,
    recognition,
    resampled,
    small_network,
    stratified,
    training_steps,
)

IMAGES, PHOTOGRAPHS = 900, 300  # that the small network and the pretrained network are asked about
SIDE = 96  # pixels of the images that the pretrained network sees
BATCH = 32
KNOWS_WELL = 0.9  # accuracy from which on no other classifier is asked
# Share of the accuracy above chance whose loss turns an augmentation off. A network that never saw mirrored images
# loses some of it on photographs too: up to 0.43 on Office-Home, where it recognises less than a third of the images.
MOST_LOST, MOST_LOST_IF_KNOWN = 0.5, 0.25
KNOWN = 0.7  # accuracy from which on the smaller limit holds
VISIBLE = 0.1  # loss from which on images only "mostly" keep their class
SWAPPED = 0.5  # share of a class that turns into one other class
CHANGES = ("mirrored", "strong")


@dataclass(frozen=True)
class ChangeEvidence:
    """Whether a change of the images keeps their class."""

    images: int
    before: float  # share of the source images that are recognised
    after: float  # the same of the changed images
    p_value: float  # probability of such a loss if the change made no difference (McNemar's exact test)
    keeps_class: bool
    sentence: str


@dataclass(frozen=True)
class AugmentationEvidence:
    """What the source images say about augmentations."""

    source: str  # fingerprint of the source images
    classifier: str  # which classifier was asked, in words
    mirrored: ChangeEvidence
    strong: ChangeEvidence

    @property
    def data_fields(self) -> dict[str, Any]:
        """The fields of `DataConfig` that follow from it: None leaves the strength of strong views as it is."""
        return {"flip": self.mirrored.keeps_class, "gentle": None if self.strong.keeps_class else True}

    @property
    def sentences(self) -> list[str]:
        """The answers, one line each."""
        return [self.mirrored.sentence, self.strong.sentence]


class Asked(NamedTuple):
    """The answers of one classifier about the same images and their changes."""

    name: str
    labels: Tensor
    predictions: dict[str, Tensor]  # of "plain" and of CHANGES

    def recognition(self, change: str) -> Recognition:
        """How many images are recognised before and after a change."""
        return recognition(self.labels, self.predictions["plain"], self.predictions[change])

    @property
    def accuracy(self) -> float:
        """The share of unchanged images that are recognised."""
        return self.recognition("plain").before


def settled_data(
    config: DataConfig, task: Task, backbone: Backbone | None, file: Path, quiet: bool = False
) -> tuple[DataConfig, AugmentationEvidence | None]:
    """The config with the augmentations that the source images allow, and the evidence for them.

    Give the config as the user stated it, before `resolved()`: what it states is kept. Nothing is asked about the
    built-in data. The evidence is noted in `file`, so that a command that is repeated on the same images decides in the
    same way, and its runs are continued.
    """
    if config.is_digits or (config.flip is not None and (config.gentle is not None or config.is_small)):
        return config, None
    found = read_evidence(file)
    if found is None or found.source != task.source.fingerprint:
        found = augmentation_evidence(task, config, backbone, quiet)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(to_json(found), indent=2).encode())
    settled = {name: value for name, value in found.data_fields.items() if getattr(config, name) is None}
    return dataclasses.replace(config, **settled), found


def read_evidence(file: Path) -> AugmentationEvidence | None:
    """The evidence that `settled_data` noted; None if there is none or it cannot be read."""
    try:
        return from_json(AugmentationEvidence, json.loads(file.read_text(encoding="utf-8")), str(file))
    except (OSError, ValueError, TypeError, InputError):
        return None


def augmentation_evidence(
    task: Task, config: DataConfig, backbone: Backbone | None = None, quiet: bool = False
) -> AugmentationEvidence:
    """The evidence of the task's source images; `backbone` is a pretrained network, if there is one."""
    source = task.source
    found = evidence_of(source.images, source.labels, source.classes, config, backbone, quiet)
    return dataclasses.replace(found, source=source.fingerprint)


def evidence_of(
    images: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    config: DataConfig,
    backbone: Backbone | None = None,
    quiet: bool = False,
) -> AugmentationEvidence:
    """The evidence of uint8 images [n, size, size, 3] with these labels.

    A small network that sees shapes is asked first. Unless it knows the images well, a linear classifier on the
    features of a pretrained network is asked too, and the one that recognises more images decides: pretrained networks
    recognise photographs, mirrored or not, and read glyphs poorly.
    """
    pretrained = backbone if backbone is not None and backbone.pretrained else None
    rows, fewer = (stratified(labels, count) for count in (IMAGES, PHOTOGRAPHS))
    steps = FOLDS * training_steps(len(rows) * (FOLDS - 1) // FOLDS)
    total = steps + (len(CHANGES) + 1) * len(fewer) * (pretrained is not None)
    with ProgressDisplay("which augmentations keep the class", total, unit="step", quiet=quiet) as display:

        def show(count: int) -> None:
            display.update(display.done + count)

        asked = _ask_small_network(images[rows], labels[rows], config, show)
        if pretrained is not None and len(fewer) and asked.accuracy < KNOWS_WELL:
            other = _ask_pretrained(images[fewer], labels[fewer], config, pretrained, show)
            asked = max(other, asked, key=lambda one: one.accuracy)
    return AugmentationEvidence("", asked.name, *(_change_evidence(asked, change, classes) for change in CHANGES))


def _changed(images: Tensor, config: DataConfig) -> dict[str, Tensor]:
    """The images themselves and under each of CHANGES, uint8 [n, size, size, 3]."""
    strong = as_stored(strong_samples(images, config, images.shape[1], flip=False))
    return {"plain": images, "mirrored": images.flip(2), "strong": strong}  # axis 2: columns


def _ask_small_network(images: Tensor, labels: Tensor, config: DataConfig, show: Callable[[int], None]) -> Asked:
    views = _changed(resampled(images), config)
    train = partial(small_network, show=lambda: show(1))
    return Asked("a small network", labels, cross_validated(views["plain"], labels, views, train))


@torch.inference_mode()
def _ask_pretrained(
    images: Tensor, labels: Tensor, config: DataConfig, backbone: Backbone, show: Callable[[int], None]
) -> Asked:
    device, was_training = next(backbone.parameters()).device, backbone.training
    backbone.eval()

    def features(pixels: Tensor) -> Tensor:
        found = []
        for part in pixels.split(BATCH):
            grey = (part.to(device).float() / 255 * torch.tensor(GREY, device=device)).sum(dim=-1)[:, None]
            found.append(backbone(grey.expand(-1, 3, -1, -1)).float().cpu())
            show(len(part))
        return torch.cat(found)

    views = {name: features(view) for name, view in _changed(resampled(images, SIDE), config).items()}
    backbone.train(was_training)
    name = "a linear classifier on pretrained features"
    return Asked(name, labels, cross_validated(views["plain"], labels, views, linear_probe))


def _change_evidence(asked: Asked, change: str, classes: Sequence[str]) -> ChangeEvidence:
    found = asked.recognition(change)
    # Strong views are hard for any classifier that never saw them: 0.28 is lost on clip art that is known well.
    known = change == "mirrored" and found.tells_something and found.before >= KNOWN
    limit, swap = (MOST_LOST_IF_KNOWN, _swapped(asked, change, classes)) if known else (MOST_LOST, "")
    keeps = not (found.tells_something and (found.lost >= limit or swap))
    what = {"mirrored": "mirrored images", "strong": "strongly cropped and turned images"}[change]
    if not found.tells_something:
        sentence = f"whether {what} keep their class cannot be said: {asked.name} does not recognise the source images"
        return ChangeEvidence(*_numbers(found), True, f"{sentence}, or there are too few of them")
    shares = f"{found.before:.0%} of {found.images} source images, and {found.after:.0%} of the {what}"
    answer = ("mostly keep" if found.lost >= VISIBLE else "keep") if keeps else "do not keep"
    sentence = f"{what} {answer} their class: {asked.name} recognises {shares}"
    return ChangeEvidence(*_numbers(found), keeps, f"{sentence}; {swap}" if swap and not keeps else sentence)


def _numbers(found: Recognition) -> tuple[int, float, float, float]:
    return found.images, found.before, found.after, found.p_value


def _swapped(asked: Asked, change: str, classes: Sequence[str]) -> str:
    """A class that turns into another one under the change, in words; empty if there is none.

    The test of each class is corrected for the number of classes (Bonferroni), so that many classes are no reason.
    """
    labels, plain, changed = asked.labels, asked.predictions["plain"], asked.predictions[change]
    present = labels.unique().tolist()
    for label in present:
        inside = labels == label
        found = recognition(labels[inside], plain[inside], changed[inside])
        taken_for = int(changed[inside].mode().values)
        share = float((changed[inside] == taken_for).float().mean())
        if found.p_value < SURE / len(present) and taken_for != label and share >= SWAPPED:
            return f"{printable(classes[label])} is taken for {printable(classes[taken_for])}"
    return ""
