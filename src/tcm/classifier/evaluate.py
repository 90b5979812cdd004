"""From a trained method to predictions, and from predictions to scores."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from tcm.data.augment import as_input, centre_crops, crop_counterfactuals, crop_images, crop_pixels
from tcm.data.store import ImageStore
from tcm.data.task import Task
from tcm.methods.method import Answer, Method

T = TypeVar("T")
BATCH = 256  # images at once, of small ones
PIXELS = 32 * 224**2  # and of larger ones: with k = 4 their counterfactuals take some 3 GB


class Scores(NamedTuple):
    """Two accuracies that differ when classes differ in size; the field mixes them up, so both have their name."""

    accuracy: float  # share of images that are right
    mean_class_accuracy: float  # mean over classes of the share of the class's images that are right


def centred(images: Tensor, crop: int, device: torch.device) -> Iterator[Tensor]:
    """Batches of uint8 images [n, size, size, 3], centre-cropped, as a method sees them on its device.

    Of counterfactuals [n, k, size, size, 3] the batches are [k, batch, 3, crop, crop].
    """
    size, take = images.shape[-2], crop_images if images.ndim == 4 else crop_counterfactuals
    batch = max(min(BATCH, PIXELS // crop**2), 1)
    for indices in torch.arange(len(images), device=images.device).split(batch):
        cuts = centre_crops(len(indices), size, crop).to(images.device)
        yield as_input(take(images, crop_pixels(indices, cuts, size, crop)).to(device))


class Predictions(NamedTuple):
    """What a method says of every image of a domain, on the CPU."""

    probabilities: Tensor  # [n, classes]
    features: Tensor  # [n, width]: what the classifier reads
    others: Mapping[str, Tensor] = MappingProxyType({})  # by name, those of the model read in other ways


class BothPredictions(NamedTuple):
    """What a method says of both domains."""

    source: Predictions
    target: Predictions


def passes(fabric: Fabric, read: Callable[[Tensor], T], images: Tensor, crop: int) -> Iterator[T]:
    """What `read` makes of each batch of centre-cropped images. The method must be in evaluation mode."""
    for some in centred(images, crop, fabric.device):
        # Compiling for evaluation would cost more than the few passes take.
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"), fabric.autocast():
            found = read(some)
        yield found


def predicted(fabric: Fabric, answer: Callable[[Tensor], Answer], images: Tensor, crop: int) -> Predictions:
    """Class probabilities and features of uint8 images [n, size, size, 3], centre-cropped, in one pass."""
    found = [
        Predictions(
            _sure(some.logits), some.features.float(), {name: _sure(logits) for name, logits in some.others.items()}
        )
        for some in passes(fabric, answer, images, crop)
    ]
    return Predictions(
        _joined(some.probabilities for some in found),
        _joined(some.features for some in found),
        {name: _joined(some.others[name] for some in found) for name in found[0].others},
    )


def judged(fabric: Fabric, method: Method, task: Task, crop: int) -> BothPredictions:
    """Both domains: the target's images by the method's answer, the source's by the fast one.

    Inverse mechanisms carry target images to the source; images that are there already they are trained to leave.
    """
    return BothPredictions(
        predicted(fabric, method.answer_fast, task.source.images, crop),
        predicted(fabric, method.answer, task.target.images, crop),
    )


def probabilities(fabric: Fabric, predict: Callable[[Tensor], Tensor], images: Tensor, crop: int) -> Tensor:
    """Class probabilities [n, classes] on the CPU of uint8 images [n, size, size, 3], centre-cropped."""
    return _joined(_sure(logits) for logits in passes(fabric, predict, images, crop))


def _sure(logits: Tensor) -> Tensor:
    return logits.float().softmax(dim=1)


def _joined(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat(list(parts)).cpu()


def score(predicted: Tensor, labels: Tensor, classes: int) -> Scores | None:
    """Scores of class probabilities [n, classes] on the images whose label is known (not -1), or None without any."""
    matrix = confusion_counts(labels.numpy(), predicted.argmax(dim=1).numpy(), classes)
    right, total = matrix.diagonal(), matrix.sum(axis=1)
    if not total.any():
        return None
    present = total > 0
    return Scores(float(right.sum() / total.sum()), float((right[present] / total[present]).mean()))


def confusion_counts(labels: NDArray[np.int64], predictions: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Images [true class, predicted class]; those without a label (-1) are left out."""
    known = labels >= 0
    cells = labels[known] * classes + predictions[known]
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def accuracies(prefix: str, predicted: Tensor, store: ImageStore) -> dict[str, float]:
    """The metrics of one domain: empty when its labels are unknown."""
    scores = score(predicted, store.labels, len(store.classes))
    if scores is None:
        return {}
    return {
        f"{prefix}/accuracy": scores.accuracy,
        f"{prefix}/mean_class_accuracy": scores.mean_class_accuracy,
    }
