"""From a trained method to predictions, and from predictions to scores."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from tcm.data.augment import as_input, centre_cuts, cut, squares
from tcm.data.store import ImageStore
from tcm.methods.method import Method

T = TypeVar("T")
BATCH = 256


class Predictor(Protocol):
    """Anything that turns images into logits."""

    def predict(self, images: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        ...


class Scores(NamedTuple):
    """Two accuracies that differ when classes differ in size; the field mixes them up, so both have their name."""

    accuracy: float  # share of images that are right
    mean_class_accuracy: float  # mean over classes of the share of the class's images that are right
    confusion: NDArray[np.int64]  # [true class, predicted class]


def centred(images: Tensor, crop: int, device: torch.device, batch: int = BATCH) -> Iterator[Tensor]:
    """Batches of uint8 images [n, size, size, 3], centre-cropped, as a method sees them on its device."""
    for indices in torch.arange(len(images), device=images.device).split(batch):
        cuts = centre_cuts(len(indices), images.shape[1], crop).to(images.device)
        yield as_input(cut(images, squares(indices, cuts, images.shape[1], crop)).to(device))


class Predicted(NamedTuple):
    """What a method says of every image of a domain, on the CPU."""

    probabilities: Tensor  # [n, classes]
    features: Tensor  # [n, width]: what the classifier reads


def passes(fabric: Fabric, read: Callable[[Tensor], T], images: Tensor, crop: int, batch: int) -> Iterator[T]:
    """What `read` makes of each batch of centre-cropped images. The method must be in evaluation mode."""
    for some in centred(images, crop, fabric.device, batch):
        # Compiling for evaluation would cost more than the few passes take.
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"), fabric.autocast():
            found = read(some)
        yield found


def readings(
    fabric: Fabric, read: Callable[[Tensor], dict[str, Tensor]], images: Tensor, crop: int, batch: int = BATCH
) -> dict[str, Tensor]:
    """Class probabilities [n, classes] on the CPU by the names that `read` gives to its logits."""
    found: dict[str, list[Tensor]] = {}
    for some in passes(fabric, read, images, crop, batch):
        for name, logits in some.items():
            found.setdefault(name, []).append(logits.float().softmax(dim=1))
    return {name: torch.cat(parts).cpu() for name, parts in found.items()}


def predicted(fabric: Fabric, method: Method, images: Tensor, crop: int, batch: int = BATCH) -> Predicted:
    """Class probabilities and features of uint8 images [n, size, size, 3], centre-cropped, in one pass."""
    found = [
        (answer.logits.float().softmax(dim=1), answer.features.float())
        for answer in passes(fabric, method.answer, images, crop, batch)
    ]
    return Predicted(*(torch.cat(parts).cpu() for parts in zip(*found, strict=True)))


def probabilities(fabric: Fabric, method: Predictor, images: Tensor, crop: int, batch: int = BATCH) -> Tensor:
    """Class probabilities [n, classes] on the CPU of uint8 images [n, size, size, 3], centre-cropped."""
    return readings(fabric, lambda some: {"": method.predict(some)}, images, crop, batch)[""]


def score(predicted: Tensor, labels: Tensor, classes: int) -> Scores | None:
    """Scores of class probabilities [n, classes] on the images whose label is known (not -1), or None without any."""
    known = labels >= 0
    if not bool(known.any()):
        return None
    guess, truth = predicted[known].argmax(dim=1).numpy(), labels[known].numpy()
    confusion = np.bincount(truth * classes + guess, minlength=classes**2).reshape(classes, classes)
    present = confusion.sum(axis=1) > 0
    per_class = confusion.diagonal()[present] / confusion.sum(axis=1)[present]
    return Scores(float((guess == truth).mean()), float(per_class.mean()), confusion)


def accuracies(prefix: str, predicted: Tensor, store: ImageStore) -> dict[str, float]:
    """The metrics of one domain: empty when its labels are unknown."""
    scores = score(predicted, store.labels, len(store.classes))
    if scores is None:
        return {}
    return {
        f"{prefix}/accuracy": scores.accuracy,
        f"{prefix}/mean_class_accuracy": scores.mean_class_accuracy,
    }
