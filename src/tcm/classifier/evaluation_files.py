"""What a finished run keeps of its result: evaluation.json with the scores, evaluation.npz with the predictions."""

import io
import json
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.classifier.evaluate import BothPredictions, accuracies, score
from tcm.data.store import ImageStore
from tcm.data.task import Task
from tcm.training.files import write_atomically
from tcm.training.run_folder import Run

SAMPLES, SHOWN, THUMBNAIL = 12, 24, 96  # images of each domain and of the gallery that a run keeps, and their side


def write_outcome(
    run: Run, name: str, task: Task, found: BothPredictions, step: int, singular_values: dict[str, list[float]]
) -> dict[str, Any]:
    """Writes evaluation.json (scores, singular values of matrices by name) and evaluation.npz (predictions and a few
    images)."""
    on_target = found.target.probabilities
    scores = score(on_target, task.target.labels, len(task.source.classes))
    summary = {
        "method": name,
        "selection": "last",
        "step": step,
        "seconds": training_seconds(run),
        "source": {
            "name": task.source.name,
            "images": len(task.source),
            "classes": len(task.source.classes),
            **_short(accuracies("source", found.source.probabilities, task.source)),
        },
        "target": {
            "name": task.target.name,
            "images": len(task.target),
            "labelled": int((task.target.labels >= 0).sum()),
            "accuracy": scores.accuracy if scores else None,
            "mean_class_accuracy": scores.mean_class_accuracy if scores else None,
            "readings": {
                name: _short(accuracies("target", other, task.target)) for name, other in found.target.others.items()
            },
        },
        "singular_values": singular_values,
        "classes": list(task.source.classes),
    }
    arrays = io.BytesIO()
    np.savez_compressed(arrays, **shown_arrays(on_target, task))
    write_atomically(run.folder / "evaluation.npz", arrays.getvalue())
    write_atomically(run.folder / "evaluation.json", json.dumps(summary, indent=2).encode())
    return summary


def training_seconds(run: Run) -> float:
    """Time spent in training steps, over all the sittings of a run."""
    return sum(row.get("seconds", 0.0) for row in run.metrics())


def shown_arrays(on_target: Tensor, task: Task) -> dict[str, Any]:
    """Predictions of the target and the thumbnails that a report shows."""
    shown = shown_images(on_target, task.target.labels)
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


def shown_images(on_target: Tensor, labels: Tensor) -> Tensor:
    """Indices of the most confident mistakes; without labels, of the most and the least confident predictions."""
    confidence, guess = on_target.max(dim=1)
    if bool((labels >= 0).any()):
        wrong = ((guess != labels) & (labels >= 0)).nonzero().flatten()
        return wrong[confidence[wrong].argsort(descending=True)][:SHOWN]
    order = confidence.argsort(descending=True)
    half = min(SHOWN, len(order)) // 2
    return torch.cat([order[:half], order[len(order) - half :]])


def thumbnails(store: ImageStore, indices: Tensor) -> np.ndarray:
    """uint8 [m, side, side, 3] of the stored images, at most THUMBNAIL pixels a side."""
    images = store.images[indices].permute(0, 3, 1, 2).float()
    side = min(store.size, THUMBNAIL)
    if len(images) and side < store.size:
        images = F.interpolate(images, (side, side), mode="bilinear", antialias=True)
    return images.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()


def _short(metrics: dict[str, float]) -> dict[str, float]:
    return {key.split("/")[1]: value for key, value in metrics.items()}
