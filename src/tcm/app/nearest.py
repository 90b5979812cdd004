"""The nearest source images of an image, by the features of a model."""

import threading
from concurrent.futures import Executor
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.app.runs import ServedModel
from tcm.classifier.neighbours import MOST
from tcm.classifier.selection import evenly_spaced
from tcm.data.store import ImageStore

CHUNK = 32  # images in a pass: requests are answered between two of them


class Near(NamedTuple):
    """A source image and its cosine with the image in question."""

    number: int
    similarity: float


class SourceFeatures:
    """Features of at most MOST source images for every model. A thread computes them while the server runs already."""

    def __init__(self, models: tuple[ServedModel, ...], store: ImageStore, worker: Executor):
        self.store, self._models, self._worker = store, models, worker
        self._numbers = evenly_spaced(torch.arange(len(store)), MOST)
        self._features: list[Tensor] = []  # one of each model that is done: [images, width], of length 1
        self._passes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._compute, name="source features", daemon=True)

    def start(self) -> None:
        """Starts the computation."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it, also before it is complete."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, seconds: float) -> bool:
        """Whether everything is computed, after at most so many seconds."""
        self._thread.join(seconds)
        return self.ready == 1

    @property
    def ready(self) -> float:
        """The share that is computed, from 0 to 1."""
        return self._passes / (len(self._models) * len(self._numbers.split(CHUNK)))

    def nearest(self, model: int, features: Tensor, count: int) -> list[Near] | None:
        """The nearest images of features [1, width] by the model of this number; None if they are not computed yet."""
        if model >= len(self._features):
            return None
        found = (F.normalize(features.float(), dim=1) @ self._features[model].T)[0]
        best = found.topk(min(count, len(found)))
        numbers = self._numbers[best.indices].tolist()
        return [Near(number, value) for number, value in zip(numbers, best.values.tolist(), strict=True)]

    def _compute(self) -> None:
        for model in self._models:
            parts: list[Tensor] = []
            for numbers in self._numbers.split(CHUNK):
                if self._stop.is_set():
                    return
                # Requests that came meanwhile have their turn first.
                parts.append(self._worker.submit(model.answer_fast, self.store.images[numbers]).result().features)
                self._passes += 1
            self._features.append(F.normalize(torch.cat(parts).float(), dim=1))
