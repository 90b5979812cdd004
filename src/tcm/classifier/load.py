"""A finished run as a classifier: images in any form in, class names, probabilities and features out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tcm.classifier.activation_maps import activation_maps
from tcm.classifier.counterfactuals import generators_of
from tcm.classifier.evaluate import BATCH, centre_crop_batches, predict_images, probabilities
from tcm.classifier.inputs import Images, Pixels, stored_pixels
from tcm.classifier.trained import Trained, load_trained
from tcm.data.augment import as_input, as_stored
from tcm.errors import InputError, explain_out_of_memory, printable
from tcm.mechanisms.pair import Side
from tcm.nn.generator import FrozenGenerators
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
        method: The network, a `torch.nn.Module`: `method(preprocess(images))` are the logits [n, classes].
    """

    def __init__(self, trained: Trained, run: Path, device: str = "auto"):
        self._trained, self._run = trained, run
        self._generators: dict[Side, FrozenGenerators] = {}
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

    def explain(self, images: Images, classes: str | Sequence[str] | None = None) -> NDArray[np.float32]:
        """Which parts of the images speak for their class (Grad-CAM): [n, crop, crop], from 0 to 1 (strongest).

        A map covers the centre of the image that the network sees, as `preprocess` gives it. It is 0 everywhere if
        nothing in the image speaks for the class. `classes` are the names of the classes to explain, one for all images
        or one for each; by default the predicted ones.
        """
        pixels = np.stack([*stored_pixels(images, self.size)])
        numbers = self._class_numbers(classes, pixels)
        batches = centre_crop_batches(torch.from_numpy(pixels), self.crop, self._fabric.device)
        return np.concatenate([self._maps(batch, numbers) for batch in batches])

    def counterfactuals(self, images: Images, *, to: Side = "source") -> NDArray[np.uint8]:
        """The counterfactuals of the images by each of the k mechanisms: uint8 [n, k, size, size, 3].

        They are M_i^-1(x) of target images, or with `to="target"` M_i(x) of source images. `predict` takes them: those
        of the first image are `counterfactuals(images)[0]`. A run without mechanisms is an error.
        """
        if to not in self._generators:
            generators = generators_of(self._run, self._trained, to)
            self._fabric.to_device(generators)
            self._generators[to] = generators

        def transport(batch: Tensor) -> Tensor:
            with torch.inference_mode(), self._fabric.autocast():
                made = self._generators[to](as_input(batch.to(self._fabric.device)))
            return as_stored(made).transpose(0, 1).cpu()

        return _in_batches(transport, stored_pixels(images, self.size))

    def preprocess(self, images: Images) -> Tensor:
        """The input of the network, [n, 3, crop, crop] in [0, 1] on its device: the images resized and cropped."""
        pixels = torch.from_numpy(np.stack([*stored_pixels(images, self.size)]))
        return torch.cat([*centre_crop_batches(pixels, self.crop, self._fabric.device)])

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

    def _class_numbers(self, classes: str | Sequence[str] | None, pixels: Pixels) -> Iterator[int]:
        """The class to explain of each image, by its number."""
        if classes is None:
            return iter(self.probabilities(pixels).argmax(axis=1).tolist())
        names = [classes] * len(pixels) if isinstance(classes, str) else list(classes)
        if len(names) != len(pixels):
            raise InputError("classes", f"has {len(names)} names for {len(pixels)} images; give one for each")
        if unknown := [name for name in names if name not in self.classes]:
            known = ", ".join(map(printable, self.classes))
            raise InputError("classes", f'has "{printable(unknown[0])}", which is not a class; there are {known}')
        return iter([self.classes.index(name) for name in names])

    @predicting
    def _maps(self, batch: Tensor, numbers: Iterator[int]) -> NDArray[np.float32]:
        classes = torch.tensor(list(islice(numbers, len(batch))), device=batch.device)
        maps = activation_maps(self.method, batch, classes)[0].float().sum(dim=0).clamp(min=0)
        large = F.interpolate(maps[:, None], (self.crop, self.crop), mode="bilinear")[:, 0]
        return (large / large.amax(dim=(1, 2), keepdim=True).clamp(min=1e-12)).cpu().numpy()


@predicting
def load_classifier(run: Path, device: str = "auto") -> Classifier:
    """The classifier of a finished run, on the device; `run` is its folder or its model.safetensors."""
    return Classifier(load_trained(run), run, device)


@predicting
def _in_batches(read: Callable[[Tensor], Tensor], pixels: Iterable[Pixels]) -> NDArray[Any]:
    return torch.cat([read(torch.from_numpy(np.stack(batch))) for batch in _batches(pixels)]).numpy()


def _batches(pixels: Iterable[Pixels]) -> Iterator[list[Pixels]]:
    """As many images at once as a pass may take, so that a large folder is never in memory as a whole."""
    coming = iter(pixels)
    while batch := list(islice(coming, BATCH)):
        yield batch
