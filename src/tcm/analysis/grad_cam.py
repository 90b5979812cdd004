"""Activation maps of several runs on the same images (TCM Figure 8)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tcm.analysis.load_runs import SideBySide, open_side_by_side, run_titles
from tcm.analysis.run_record import Evaluation, read_record
from tcm.analysis.shown_images import Shown, source_images, target_images
from tcm.classifier.activation_maps import activation_maps
from tcm.classifier.evaluate import centre_crop_batches
from tcm.data.augment import as_stored
from tcm.errors import InputError, explain_out_of_memory, printable


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
    """Runs on the same images: images of the source, if any, then target images on which they differ."""

    runs: tuple[Maps, ...]
    true: list[str]  # [images] class names; empty where unknown
    counts: str  # how many such target images there are, in words
    sources: int = 0  # how many of the images are of the source


@explain_out_of_memory("the figure", "free some or set `device` to cpu")
def compare_runs(
    folders: Sequence[Path],
    images: int,
    device: str = "auto",
    quiet: bool = False,
    *,
    sources: int = 0,
    shown: Shown = "differ",
) -> ActivationComparison:
    """Activation maps of all runs for at most `images` target images and `sources` source images.

    Which target images: see `target_images`. The source images are of their classes, if there are such images.
    """
    for name, value, least in (("images", images, 1), ("source_images", sources, 0)):
        if value < least:
            raise InputError(name, f"is {value}; give {least} or more")
    if len(folders) < 2:
        raise InputError(f"the figure compares two runs or more, but was given {len(folders)}; name others")
    opened = open_side_by_side(folders, device, quiet)
    titles = run_titles(opened.runs, folders)
    guesses = [torch.from_numpy(_evaluation(folder, opened).predictions) for folder in folders]
    source, target = opened.task
    chosen, counts = target_images(guesses, target.labels, images, titles, shown)
    about = target.labels if bool((target.labels >= 0).any()) else guesses[-1]
    of_source = source_images(source.labels, about[chosen].tolist(), sources)
    pixels = torch.cat([source.images[of_source], target.images[chosen]])
    pixels = torch.cat([*centre_crop_batches(pixels, opened.crop, opened.fabric.device)])
    runs = []
    for run, title, guess in zip(opened.runs, titles, guesses, strict=True):
        with torch.no_grad():
            on_source = run.method.answer_fast(pixels[: len(of_source)]).logits.argmax(dim=1).cpu()
        classes = torch.cat([on_source, guess[chosen]])
        maps, views = activation_maps(run.method, pixels, classes.to(pixels.device))
        predicted = [source.classes[number] for number in classes.tolist()]
        runs.append(Maps(title, predicted, as_stored(views).cpu().numpy(), maps.float().cpu().numpy()))
    labels = torch.cat([source.labels[of_source], target.labels[chosen]]).tolist()
    true = [source.classes[number] if number >= 0 else "" for number in labels]
    return ActivationComparison(tuple(runs), true, counts, len(of_source))


def _evaluation(folder: Path, opened: SideBySide) -> Evaluation:
    found = read_record(folder).evaluation
    if found is None or found.arrays["paths"].tolist() != opened.task.target.paths:
        which = "has no predictions" if found is None else "has predictions for other images"
        raise InputError(f"{printable(folder)} {which}; repeat tcm evaluate {printable(folder)}")
    return found
