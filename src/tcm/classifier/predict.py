"""Predictions of a finished run for a folder of new images."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tcm.classifier.inputs import Pixels, image_paths, read_pixels
from tcm.classifier.load import load_classifier
from tcm.data.images import BadImage
from tcm.data.reading import read_all
from tcm.errors import InputError, printable

Prediction = tuple[str, str, float]  # path, class, confidence


def predict_folder(
    run: Path, folder: Path, device: str, quiet: bool, fast: bool = False
) -> tuple[list[Prediction], list[tuple[str, str]]]:
    """Path, class and confidence of every image below the folder; path and reason of every unreadable file.

    `fast` predicts from the image alone, without its counterfactuals.
    """
    classifier = load_classifier(run, device)
    paths = image_paths(folder)
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
            reason = bad[0][1]
            raise InputError(f"none of the {len(bad)} images in {printable(folder)} can be read; the first: {reason}")

    found = classifier.probabilities(readable(), fast=fast)
    names = [classifier.classes[guess] for guess in found.argmax(axis=1)]
    return list(zip(good, names, found.max(axis=1).tolist(), strict=True)), bad
