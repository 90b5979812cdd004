"""Which parts of an image speak for its class: Grad-CAM of an image and of its counterfactuals (TCM Figure 8).

Grad-CAM (Selvaraju et al., ICCV 2017) weights the last feature maps by the mean gradient of the class's score. For a
linear classifier on pooled maps it equals the class activation map (Zhou et al., CVPR 2016), which the paper shows, but
it also works with a bottleneck and with h_y.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tcm.analysis.load_runs import SideBySide, open_side_by_side, run_titles
from tcm.analysis.run_record import Evaluation, read_record
from tcm.classifier.evaluate import centre_crop_batches
from tcm.data.augment import as_stored
from tcm.errors import InputError, explain_out_of_memory, printable
from tcm.mechanisms.gallery import spread_over_classes
from tcm.methods.method import Method
from tcm.nn.backbone import Backbone


class Maps(NamedTuple):
    """One run on the images that are shown. The first view is the image, the others are its counterfactuals."""

    title: str
    predicted: list[str]  # [images] class names
    views: NDArray[np.uint8]  # [views, images, side, side, 3]
    maps: NDArray[np.float32]  # [views, images, height, width]: what each view adds to the score, signed

    @property
    def combined(self) -> NDArray[np.float32]:
        """The map of the prediction [images, height, width]: the sum over views, 0 where that is negative."""
        return self.maps.sum(axis=0).clip(min=0)


class ActivationComparison(NamedTuple):
    """Two runs on target images on which they differ."""

    runs: tuple[Maps, Maps]
    true: list[str]  # [images] class names; empty where unknown
    counts: str  # how many such images there are, in words


class Recording(nn.Module):
    """A backbone that keeps its last images and their feature maps."""

    images: Tensor
    maps: Tensor

    def __init__(self, backbone: Backbone):
        super().__init__()
        self.backbone, self.features = backbone, backbone.features

    def forward(self, images: Tensor) -> Tensor:
        """Features [batch, features]."""
        self.images, self.maps = images, self.backbone.maps(images)
        return self.backbone.pooled(self.maps)


def activation_maps(method: Method, images: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Grad-CAM, before its ReLU, of images [batch, ...] for one class each, and the views that the scores depend on.

    Maps [views, batch, height, width] and images [views, batch, 3, side, side]: one view, or the image and then its
    counterfactuals. The gradient is that of the whole score, so each view's map has the size of its contribution.
    """
    plain, recording = method.backbone, Recording(method.backbone)
    method.backbone = recording  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with torch.enable_grad():
            scores = method.class_scores(images)
            chosen = scores.gather(1, classes[:, None]).sum()
            (gradient,) = torch.autograd.grad(chosen, recording.maps)
    finally:
        method.backbone = plain
    found = (gradient.mean(dim=(2, 3), keepdim=True) * recording.maps).sum(dim=1).detach()
    return found.unflatten(0, (-1, len(images))), recording.images.unflatten(0, (-1, len(images)))


@explain_out_of_memory("the figure", "free some or set `device` to cpu")
def compare_runs(
    folders: Sequence[Path], images: int, device: str = "auto", quiet: bool = False
) -> ActivationComparison:
    """At most `images` target images on which the two runs differ, and the activation maps of both."""
    if images < 1:
        raise InputError("images", f"is {images}; give 1 or more")
    opened = open_side_by_side(folders, device, quiet)
    evaluations = [_evaluation(folder, opened) for folder in folders]
    titles = run_titles(opened.runs, folders)
    guesses = [torch.from_numpy(one.predictions) for one in evaluations]
    labels = opened.task.target.labels
    chosen, counts = chosen_images(guesses[0], guesses[1], labels, images, titles)
    pixels = torch.cat([*centre_crop_batches(opened.task.target.images[chosen], opened.crop, opened.fabric.device)])
    names = opened.task.source.classes
    runs = []
    for run, title, guess in zip(opened.runs, titles, guesses, strict=True):
        maps, views = activation_maps(run.method, pixels, guess[chosen].to(pixels.device))
        predicted = [names[number] for number in guess[chosen].tolist()]
        runs.append(Maps(title, predicted, as_stored(views).cpu().numpy(), maps.float().cpu().numpy()))
    true = [names[number] if number >= 0 else "" for number in labels[chosen].tolist()]
    return ActivationComparison((runs[0], runs[1]), true, counts)


def chosen_images(
    first: Tensor, second: Tensor, labels: Tensor, count: int, titles: Sequence[str]
) -> tuple[Tensor, str]:
    """Indices of at most `count` images that one run gets right and the other wrong, and how many there are, in words.

    If possible, half are right in the first run and half in the second. Without labels, the images on which the runs
    disagree.
    """
    if not bool((labels >= 0).any()):
        differ = (first != second).nonzero().flatten()
        _require_some(len(differ), titles)
        return _spread(differ, first, count), f"They disagree on {len(differ)} of {len(labels)} images."
    kinds = [
        ((one == labels) & (other != labels)).nonzero().flatten() for one, other in ((first, second), (second, first))
    ]
    _require_some(sum(map(len, kinds)), titles)
    half = -(-count // 2)
    of_second = min(max(count - half, count - len(kinds[0])), len(kinds[1]))
    parts = [_spread(kinds[0], labels, count - of_second), _spread(kinds[1], labels, of_second)]
    total, (one, other) = int((labels >= 0).sum()), map(len, kinds)
    counts = f"Of {total} images, only {titles[0]} classifies {one} correctly and only {titles[1]} {other}."
    return torch.cat(parts), counts


def _spread(numbers: Tensor, classes: Tensor, count: int) -> Tensor:
    return numbers[spread_over_classes(classes[numbers], count)] if len(numbers) and count else numbers[:0]


def _require_some(count: int, titles: Sequence[str]) -> None:
    if not count:
        raise InputError(f"{' and '.join(titles)} do not differ on any target image; name runs that do")


def _evaluation(folder: Path, opened: SideBySide) -> Evaluation:
    found = read_record(folder).evaluation
    if found is None or found.arrays["paths"].tolist() != opened.task.target.paths:
        which = "has no predictions" if found is None else "has predictions for other images"
        raise InputError(f"{printable(folder)} {which}; repeat tcm evaluate {printable(folder)}")
    return found
