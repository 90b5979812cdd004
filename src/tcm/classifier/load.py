"""A finished run as a classifier: images in any form in, class names, probabilities and features out."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tcm.classifier.evaluate import BATCH, predict_images, probabilities
from tcm.classifier.inputs import Images, Pixels, stored_pixels
from tcm.classifier.train import Trained, load_trained
from tcm.errors import explain_out_of_memory
from tcm.training.device import inference_on

predicting = explain_out_of_memory("predicting", "free some, or set `device=cpu`")


class Classifier:
    """A trained classifier. `tcm.load(run)` gives one, and so do `tcm.fit` and `tcm.train`.

    `images` is a path of a file or a folder, a PIL image, a numpy array uint8 [height, width, 3] or
    [n, height, width, 3], a torch tensor [3, height, width] or [n, 3, height, width], or a list of these. Arrays and
    tensors may also hold floats in [0, 1]. The images below a folder are taken in the order of their sorted paths, and
    one image counts as a batch of one. Give whole images: they are resized and centre-cropped as in training.

    With `fast=True` a method that uses counterfactuals predicts from the image alone: faster, and in general less
    accurate. For the other methods nothing changes.

    Attributes:
        classes: Names of the classes, in the order of the columns of `predict_proba`.
        method_name: Name of the method, a key of `tcm.METHODS`.
        config: All settings of the run, with every default filled in.
        method: The network, a `torch.nn.Module`: `method.predict` gives logits of tensors.
    """

    def __init__(self, trained: Trained, device: str = "auto"):
        self.method_name, self.classes = trained.name, trained.classes
        self.config, self.method = trained.config, trained.method
        self._fabric = inference_on(device, self.config.precision)
        self._fabric.to_device(self.method)

    def __repr__(self) -> str:
        size, crop = self.config.data.sides
        about = f"{len(self.classes)} classes, size={size}, crop={crop}, device={str(self._fabric.device)!r}"
        return f"Classifier({self.method_name!r}, {about})"

    def predict(self, images: Images, *, fast: bool = False) -> NDArray[np.str_]:
        """The class name of every image: [n]."""
        return np.array(self.classes)[self.predict_proba(images, fast=fast).argmax(axis=1)]

    def predict_proba(self, images: Images, *, fast: bool = False) -> NDArray[np.float32]:
        """Class probabilities [n, classes] of the images; every row adds up to 1."""
        return self.probabilities(stored_pixels(images, self.size), fast=fast)

    def features(self, images: Images, *, fast: bool = False) -> NDArray[np.float32]:
        """The input of the last layer for the images: [n, width]."""
        answer = self.method.answer_fast if fast else self.method.answer

        def read(batch: Tensor) -> Tensor:
            return predict_images(self._fabric, answer, batch, self.crop).features

        return _in_batches(read, stored_pixels(images, self.size))

    def probabilities(self, pixels: Iterable[Pixels], *, fast: bool = False) -> NDArray[np.float32]:
        """Class probabilities [n, classes] of images uint8 [size, size, 3] that are resized already, at least one."""
        predict = self.method.predict_fast if fast else self.method.predict
        return _in_batches(partial(probabilities, self._fabric, predict, crop=self.crop), pixels)

    @property
    def size(self) -> int:
        """Side in pixels to which images are resized."""
        return self.config.data.sides[0]

    @property
    def crop(self) -> int:
        """Side in pixels of the centre that the network sees."""
        return self.config.data.sides[1]


@predicting
def load_classifier(run: Path, device: str = "auto") -> Classifier:
    """The classifier of a finished run, on the device."""
    return Classifier(load_trained(run), device)


@predicting
def _in_batches(read: Callable[[Tensor], Tensor], pixels: Iterable[Pixels]) -> NDArray[np.float32]:
    return torch.cat([read(torch.from_numpy(np.stack(batch))) for batch in _batches(pixels)]).numpy()


def _batches(pixels: Iterable[Pixels]) -> Iterator[list[Pixels]]:
    """As many images at once as a pass may take, so that a large folder is never in memory as a whole."""
    coming = iter(pixels)
    while batch := list(islice(coming, BATCH)):
        yield batch
