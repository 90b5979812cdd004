"""The result of a finished run on disk: evaluation.json has the scores, evaluation.npz the predictions."""

import io
import json
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.classifier.evaluate import TaskPredictions, accuracies, score
from tcm.classifier.neighbours import neighbour_agreements
from tcm.data.store import ImageStore
from tcm.data.task import Task
from tcm.training.run_folder import Run

SAMPLES, SHOWN = 12, 24  # images kept: samples of each domain, and the least confident predictions for the report
THUMBNAIL = 96  # largest side of a kept image, in pixels


def write_evaluation(
    run: Run,
    name: str,
    task: Task,
    predictions: TaskPredictions,
    step: int,
    singular_values: dict[str, list[float]],
    held_out: Tensor | None = None,
) -> dict[str, Any]:
    """Writes evaluation.json (scores, singular values of matrices by name) and evaluation.npz (predictions and a few
    images). Returns the content of evaluation.json.

    `held_out`, bool [n], marks the source images that training did not see.
    """
    on_target = predictions.target.probabilities
    scores = score(on_target, task.target.labels, len(task.source.classes))
    summary = {
        "method": name,
        "selection": "last",
        "step": step,
        "seconds": training_seconds(run),
        "memory": training_memory(run),
        "source": source_scores(predictions.source.probabilities, task.source, held_out),
        "target": {
            "name": task.target.name,
            "images": len(task.target),
            "labelled": int((task.target.labels >= 0).sum()),
            "accuracy": scores.accuracy if scores else None,
            "mean_class_accuracy": scores.mean_class_accuracy if scores else None,
            "variants": {
                name: _without_prefix(accuracies("target", probabilities, task.target))
                for name, probabilities in predictions.target.variants.items()
            },
        },
        "neighbours": neighbour_agreements(predictions, task.source.labels, held_out),
        "singular_values": singular_values,
        "classes": list(task.source.classes),
    }
    arrays = io.BytesIO()
    np.savez_compressed(arrays, **report_arrays(on_target, task), **source_arrays(predictions, task, held_out))
    run.write(run.folder / "evaluation.npz", arrays.getvalue())
    run.write(run.folder / "evaluation.json", json.dumps(summary, indent=2).encode())
    return summary


def training_seconds(run: Run) -> float:
    """Time spent in training steps, summed over all sessions of a resumed run."""
    return sum(row.get("seconds", 0.0) for row in run.metrics())


def training_memory(run: Run) -> float | None:
    """The largest GPU memory in GB of all sessions of the run, with the images that were on the GPU; None on a CPU."""
    return max((row["memory"] for row in run.metrics() if "memory" in row), default=None)


def report_arrays(on_target: Tensor, task: Task) -> dict[str, Any]:
    """Predictions for the target images, and the thumbnails that a report shows."""
    shown = images_to_show(on_target, task.target.labels)
    some_source, some_target = (torch.linspace(0, len(store) - 1, SAMPLES).long() for store in task)
    return {
        "probabilities": on_target.numpy(),
        "labels": task.target.labels.numpy(),
        "paths": np.array(task.target.paths),
        "source_images": thumbnails(task.source, some_source),
        "source_labels": task.source.labels[some_source].numpy(),
        "target_images": thumbnails(task.target, some_target),
        "shown_index": shown.numpy(),
        "shown_images": thumbnails(task.target, shown),
    }


def source_scores(on_source: Tensor, store: ImageStore, held_out: Tensor | None) -> dict[str, Any]:
    """The name, size and accuracies of the source; `domains` has those of each source if several were pooled."""
    domains = [
        {"name": source.name, "images": source.images, **_scores_of_rows(on_source, store, held_out, rows)}
        for source, rows in store.source_rows()
    ]
    return {
        "name": store.name,
        "images": len(store),
        "classes": len(store.classes),
        **_scores_of_rows(on_source, store, held_out, slice(None)),
        **({"domains": domains} if domains else {}),
    }


def _scores_of_rows(on_source: Tensor, store: ImageStore, held_out: Tensor | None, rows: slice) -> dict[str, Any]:
    """The accuracies on some source images, how many of them training did not see, and the accuracy on those."""
    unseen = torch.zeros(len(store), dtype=torch.bool)
    if held_out is not None:
        unseen[rows] = held_out[rows]
    found = score(on_source[unseen], store.labels[unseen], len(store.classes))
    scores = _without_prefix(accuracies("source", on_source, store, rows))
    return {**scores, "held_out": int(unseen.sum()), "held_out_accuracy": found.accuracy if found else None}


def source_arrays(predictions: TaskPredictions, task: Task, held_out: Tensor | None) -> dict[str, Any]:
    """Predictions for all source images, their classes, and which of them training did not see."""
    none = torch.zeros(len(task.source), dtype=torch.bool)
    return {
        "on_source": predictions.source.probabilities.numpy(),
        "source_classes": task.source.labels.numpy(),
        "held_out": (none if held_out is None else held_out).numpy(),
    }


def images_to_show(on_target: Tensor, labels: Tensor) -> Tensor:
    """Indices of the images of a report's galleries: the least confident predictions, and half as many most confident
    ones, of all classes in turn; where there are labels, the most confident mistakes in place of these."""
    confidence, guess = on_target.max(dim=1)
    order = confidence.argsort()
    doubtful, rest = order[:SHOWN], order[SHOWN:].flip(0)
    if bool((labels >= 0).any()):
        rest = rest[((guess != labels) & (labels >= 0))[rest]]
    else:
        rest = rest[places_in_class(guess[rest]).argsort(stable=True)]
    return torch.cat([doubtful, rest[: SHOWN // 2]])


def places_in_class(guess: Tensor) -> Tensor:
    """How many elements before each have its class [m]: 0 for the first of every class."""
    grouped = guess.argsort(stable=True)
    counts = guess.bincount()
    starts = (counts.cumsum(0) - counts)[guess[grouped]]
    return torch.empty_like(guess).index_copy_(0, grouped, torch.arange(len(guess)) - starts)


def thumbnails(store: ImageStore, indices: Tensor) -> np.ndarray:
    """The stored images as uint8 [m, side, side, 3], with a side of at most THUMBNAIL pixels."""
    images = store.images[indices].permute(0, 3, 1, 2).float()
    side = min(store.size, THUMBNAIL)
    if len(images) and side < store.size:
        images = F.interpolate(images, (side, side), mode="bilinear", antialias=True)
    return images.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()


def _without_prefix(metrics: dict[str, float]) -> dict[str, float]:
    return {key.split("/")[-1]: value for key, value in metrics.items()}
