"""Predictions of a finished run for new images."""

import csv
import io
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tcm.classifier.inputs import Pixels, image_paths, read_pixels
from tcm.classifier.load import load_classifier
from tcm.data.images import BadImage
from tcm.data.reading import read_all
from tcm.errors import InputError, printable


class Predicted(NamedTuple):
    """The predictions for some images."""

    paths: Sequence[str]
    classes: Sequence[str]  # names, in the order of the columns
    probabilities: NDArray[np.float32]  # [n, classes]


def predict_folder(
    run: Path, images: Path, device: str, quiet: bool, fast: bool = False
) -> tuple[Predicted, list[tuple[str, str]]]:
    """The predictions for an image file, or for every image below a folder; path and reason of every unreadable file.

    `fast` predicts from the image alone, without its counterfactuals.
    """
    classifier = load_classifier(run, device)
    folder, paths = (images.parent, [images.name]) if os.path.isfile(images) else (images, image_paths(images))
    good: list[str] = []
    bad: list[tuple[str, str]] = []

    def readable() -> Iterator[Pixels]:
        read = partial(read_pixels, size=classifier.size)
        files = [folder / path for path in paths]
        for path, found in zip(paths, read_all(read, files, "classifying", quiet=quiet), strict=True):
            if isinstance(found, BadImage):
                bad.append((path, str(found)))
            else:
                good.append(path)
                yield found
        if not good:
            found = f"none of the {len(bad)} images in {printable(images)} can be read; the first: {bad[0][1]}"
            raise InputError(found if images != files[0] else f"{printable(images)} cannot be read: {bad[0][1]}")

    found = classifier.probabilities(readable(), fast=fast)
    return Predicted(good, classifier.classes, found), bad


def predictions_csv(found: Predicted, probabilities: bool = False) -> str:
    """Path, class and confidence of every image as CSV; with `probabilities`, a column for each class follows."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["path", "class", "confidence", *(found.classes if probabilities else ())])
    for path, row in zip(found.paths, found.probabilities, strict=True):
        shares = [f"{share:.6f}" for share in row] if probabilities else []
        writer.writerow([path, found.classes[row.argmax()], f"{row.max():.4f}", *shares])
    return text.getvalue()
