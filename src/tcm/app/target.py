"""The target images of the served runs, in their order or sorted by doubt."""

import io
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tcm.app.answers import ClassProbability, TargetRow
from tcm.app.runs import ServedRuns
from tcm.data.store import ImageStore
from tcm.errors import InputError, printable
from tcm.estimation.inputs import RunPredictions, read_predictions

Order = Literal["doubt", "files"]


class TargetGallery:
    """The target images and every model's predictions for them. Images have numbers: no request contains a path."""

    def __init__(self, store: ImageStore, predictions: list[RunPredictions]):
        self.store, self.predictions = store, predictions
        self.classes = [printable(name) for name in predictions[0].classes]
        self._best = [run.target.max(axis=1) for run in predictions]

    def __len__(self) -> int:
        return len(self.store)

    def order(self, by: Order, model: int) -> NDArray[np.int64]:
        """The numbers of all images; by doubt: the least confident prediction of the model first."""
        return np.arange(len(self)) if by == "files" else np.argsort(self._best[model], kind="stable")

    def row(self, number: int, label: str | None) -> TargetRow:
        """What the list shows of an image."""
        guesses = [int(run.predicted[number]) for run in self.predictions]
        return TargetRow(
            number=number,
            path=self.shown_path(number),
            predictions=[
                ClassProbability(name=self.classes[guess], probability=float(best[number]))
                for guess, best in zip(guesses, self._best, strict=True)
            ],
            differ=len(set(guesses)) > 1,
            label=label,
        )

    def pixels(self, number: int) -> NDArray[np.uint8]:
        """The stored image uint8 [size, size, 3]."""
        return self.store.images[number].numpy()

    def png(self, number: int) -> bytes:
        """The stored image as a file."""
        buffer = io.BytesIO()
        Image.fromarray(self.pixels(number)).save(buffer, "PNG")
        return buffer.getvalue()

    def shown_path(self, number: int) -> str:
        """The path of the image below its domain, on one line."""
        return printable(self.store.paths[number])


def open_gallery(runs: ServedRuns) -> TargetGallery | None:
    """The target images with the predictions that each run has stored; None, and a note, if they are not there."""
    if runs.task is None:
        return None
    store, found = runs.task.target, []
    try:
        for model in runs.models:
            found.append(read_predictions(model.folder))
            if found[-1].paths.tolist() != store.paths:
                of_others = f"{printable(model.folder)} has predictions for other images"
                raise InputError(f"{of_others}; repeat tcm evaluate {printable(model.folder)}")
    except InputError as error:
        runs.notes.append(f"The target cannot be browsed: {error}")
        return None
    return TargetGallery(store, found)
