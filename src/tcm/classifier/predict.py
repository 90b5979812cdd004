"""Predictions of a finished run for a folder of new images."""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from tcm.classifier.evaluate import BATCH, probabilities
from tcm.classifier.train import load_trained
from tcm.data.folders import images_below
from tcm.data.images import BadImage, decode, resized
from tcm.data.reading import read_all
from tcm.errors import InputError, explain_out_of_memory, printable
from tcm.training.run_config import make_fabric

Prediction = tuple[str, str, float]  # path, class, confidence


@explain_out_of_memory("predicting", "free some, or set `device` to cpu")
def predict_folder(
    run: Path, folder: Path, device: str, quiet: bool, fast: bool = False
) -> tuple[list[Prediction], list[tuple[str, str]]]:
    """Path, class and confidence of every image below the folder; path and reason of every unreadable file.

    `fast` predicts from the image alone, without its counterfactuals.
    """
    trained = load_trained(run)
    predict = trained.method.predict_fast if fast else trained.method.predict
    fabric = make_fabric(device, trained.config.precision)
    fabric.to_device(trained.method)
    paths = images_below(folder)
    if not paths:
        raise InputError(
            f"{printable(folder)} holds no images (jpg, png, webp, bmp, gif, tif); give the folder that holds them"
        )
    size, crop = trained.config.data.size, trained.config.data.view.crop
    assert size is not None
    rows: list[Prediction] = []
    bad: list[tuple[str, str]] = []
    waiting: list[tuple[str, np.ndarray]] = []

    def classify() -> None:
        images = torch.from_numpy(np.stack([image for _, image in waiting]))
        found = probabilities(fabric, predict, images, crop)
        confidences, guesses = found.max(dim=1)
        names = [trained.classes[guess] for guess in guesses.tolist()]
        rows.extend(zip([path for path, _ in waiting], names, confidences.tolist(), strict=True))
        waiting.clear()

    read = partial(_pixels, folder=folder, size=size)
    for path, found in zip(paths, read_all(read, paths, "classifying", quiet=quiet), strict=True):
        if isinstance(found, BadImage):
            bad.append((path, str(found)))
            continue
        waiting.append((path, found))
        if len(waiting) == BATCH:
            classify()
    if waiting:
        classify()
    if not rows:
        raise InputError(f"none of the {len(bad)} images in {printable(folder)} can be read; the first: {bad[0][1]}")
    return rows, bad


def _pixels(path: str, folder: Path, size: int) -> np.ndarray | BadImage:
    try:
        return resized(decode(folder / path), size)
    except BadImage as reason:
        return reason
