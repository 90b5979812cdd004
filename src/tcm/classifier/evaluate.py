"""Predictions of a trained method, and their accuracies."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tcm.data.augment import as_input, centre_crops, crop_counterfactuals, crop_images, crop_pixels
from tcm.data.store import ImageStore
from tcm.data.task import Task
from tcm.methods.method import Answer, Method
from tcm.progress import ProgressDisplay
from tcm.training.device import Compute, uncompiled

T = TypeVar("T")
Show = Callable[[int], None]  # gets the number of images that are done
BATCH = 256  # images in a batch, if they are small
PIXELS = 32 * 224**2  # pixels in a batch at most: with k = 4 the counterfactuals take about 3 GB


class Scores(NamedTuple):
    """Two accuracies that differ when classes differ in size. Papers report either of them as "accuracy"."""

    accuracy: float  # share of correct images
    mean_class_accuracy: float  # mean over classes of the share of correct images in the class


class Predictions(NamedTuple):
    """Predictions for every image of a domain, on the CPU."""

    probabilities: Tensor  # [n, classes]
    features: Tensor  # [n, width], the input of the classifier
    variants: Mapping[str, Tensor] = MappingProxyType({})  # name -> probabilities of another way to predict


class TaskPredictions(NamedTuple):
    """Predictions for both domains."""

    source: Predictions
    target: Predictions


def centre_crop_batches(images: Tensor, crop: int, device: torch.device) -> Iterator[Tensor]:
    """Batches [batch, 3, crop, crop] in [0, 1] on the device, from uint8 images [n, size, size, 3].

    Counterfactuals [n, k, size, size, 3] give batches [k, batch, 3, crop, crop].
    """
    size, take = images.shape[-2], crop_images if images.ndim == 4 else crop_counterfactuals
    batch = max(min(BATCH, PIXELS // crop**2), 1)
    for indices in torch.arange(len(images), device=images.device).split(batch):
        cuts = centre_crops(len(indices), size, crop).to(images.device)
        yield as_input(take(images, crop_pixels(indices, cuts, size, crop)).to(device))


def run_in_batches(
    fabric: Compute, function: Callable[[Tensor], T], images: Tensor, crop: int, show: Show = lambda done: None
) -> Iterator[T]:
    """`function` of each batch of centre crops. The method must be in evaluation mode."""
    done = 0
    for batch in centre_crop_batches(images, crop, fabric.device):
        # Compiling for evaluation would cost more than the few passes take.
        with torch.inference_mode(), uncompiled(), fabric.autocast():
            result = function(batch)
        done += batch.shape[-4]
        show(done)
        yield result


def predict_images(
    fabric: Compute, answer: Callable[[Tensor], Answer], images: Tensor, crop: int, show: Show = lambda done: None
) -> Predictions:
    """Predictions for uint8 images [n, size, size, 3], centre-cropped, in one pass."""

    def tensors(found: Answer) -> dict[str, Tensor]:
        variants = {f"variant {name}": _probabilities(logits) for name, logits in found.variants.items()}
        return {"probabilities": _probabilities(found.logits), "features": found.features.float(), **variants}

    whole = _gathered(map(tensors, run_in_batches(fabric, answer, images, crop, show)), len(images))
    variants = {name.removeprefix("variant "): found for name, found in whole.items() if name.startswith("variant ")}
    return Predictions(whole["probabilities"], whole["features"], variants)


def predict_task(fabric: Compute, method: Method, task: Task, crop: int, quiet: bool = True) -> TaskPredictions:
    """Predictions for both domains: `answer` for target images, `answer_fast` for source images.

    Source images need no inverse mechanisms: these transport target images to the source domain, and are trained to
    leave source images as they are.
    """
    first = len(task.source.images)

    def show(store: ImageStore, before: int) -> Show:
        def shown(done: int) -> None:
            display.update(before + done)
            store.release_pages()  # or all images would count as memory of this process in the end

        return shown

    with ProgressDisplay("evaluate", first + len(task.target.images), unit="image", quiet=quiet) as display:
        return TaskPredictions(
            predict_images(fabric, method.answer_fast, task.source.images, crop, show(task.source, 0)),
            predict_images(fabric, method.answer, task.target.images, crop, show(task.target, first)),
        )


def shown_after(display: ProgressDisplay, before: int) -> Show:
    """Shows the images that are done, after so many others."""
    return lambda done: display.update(before + done)


def counterfactual_variants(
    fabric: Compute, method: Method, predicted: Tensor, made: Tensor, crop: int, quiet: bool = True
) -> dict[str, Tensor]:
    """Other ways to predict target images, from their counterfactuals on disk: uint8 [n, k, size, size, 3].

    `average` is the mean prediction on an image and its counterfactuals, TCM Eq. (1). They are cropped after transport,
    as in training. `predicted` are the predictions on the images alone, [n, classes].
    """
    images, k = made.shape[:2]
    each: list[Tensor] = []
    with ProgressDisplay("evaluate counterfactuals", k * images, unit="image", quiet=quiet) as display:
        for number in range(k):
            logits = run_in_batches(
                fabric, method.predict_fast, made[:, number], crop, shown_after(display, number * images)
            )
            each.append(_concatenated(map(_probabilities, logits)))
    alone = {f"mechanism {number} alone": found for number, found in enumerate(each, start=1)}
    return {"average": torch.stack([predicted, *each]).mean(dim=0), **alone}


def probabilities(fabric: Compute, predict: Callable[[Tensor], Tensor], images: Tensor, crop: int) -> Tensor:
    """Class probabilities [n, classes] on the CPU of uint8 images [n, size, size, 3], centre-cropped."""
    return _concatenated(_probabilities(logits) for logits in run_in_batches(fabric, predict, images, crop))


def _probabilities(logits: Tensor) -> Tensor:
    return logits.float().softmax(dim=1)


def _gathered(batches: Iterable[Mapping[str, Tensor]], count: int) -> dict[str, Tensor]:
    """The batches of each name one after the other, [count, ...] on the CPU.

    They are copied into one tensor each as they come: many small ones between the large ones of a network would keep
    a gigabyte of memory from being used again.
    """
    whole, done = dict[str, Tensor](), 0
    for batch in batches:
        size = len(next(iter(batch.values())))
        for name, part in batch.items():
            if name not in whole:
                whole[name] = part.new_empty((count, *part.shape[1:]))
            whole[name][done : done + size] = part
        done += size
    return {name: found.cpu() for name, found in whole.items()}


def _concatenated(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat(list(parts)).cpu()


def score(predicted: Tensor, labels: Tensor, classes: int) -> Scores | None:
    """Accuracies of class probabilities [n, classes] on the labelled images (label not -1); None if there are none.

    Every evaluation of a run calls this, so it counts with numpy and does not need the whole confusion matrix.
    """
    known = labels >= 0
    truth, guess = labels[known].numpy(), predicted.argmax(dim=1)[known].numpy()
    if not len(truth):
        return None
    total = np.bincount(truth, minlength=classes)
    correct = np.bincount(truth[guess == truth], minlength=classes)
    present = total > 0
    return Scores(float(correct.sum() / total.sum()), float((correct[present] / total[present]).mean()))


def confusion_counts(labels: NDArray[np.int64], predictions: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Number of images [true class, predicted class], without the images that have no label (-1)."""
    from sklearn.metrics import confusion_matrix  # imported here: scikit-learn takes a second to import

    known = labels >= 0
    return confusion_matrix(labels[known], predictions[known], labels=np.arange(classes))


def source_accuracies(predicted: Tensor, store: ImageStore) -> dict[str, float]:
    """The metrics of the source domain, and of each source by its name if several were pooled."""
    found = accuracies("source", predicted, store)
    for source, rows in store.source_rows():
        found |= accuracies(f"source/{source.name}", predicted, store, rows)
    return found


def accuracies(prefix: str, predicted: Tensor, store: ImageStore, rows: slice = slice(None)) -> dict[str, float]:
    """The metrics of one domain, or of some of its rows; empty if it has no labels."""
    scores = score(predicted[rows], store.labels[rows], len(store.classes))
    if scores is None:
        return {}
    return {
        f"{prefix}/accuracy": scores.accuracy,
        f"{prefix}/mean_class_accuracy": scores.mean_class_accuracy,
    }
