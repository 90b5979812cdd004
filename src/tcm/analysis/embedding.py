"""How far apart two domains are in the features of finished runs: proxy A-distance, and points by t-SNE."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from tcm.analysis.load_runs import open_side_by_side, run_titles
from tcm.classifier.evaluate import centre_crop_batches
from tcm.data.task import Task
from tcm.errors import InputError, explain_out_of_memory
from tcm.mechanisms.image_grid import spread_over_classes
from tcm.methods.method import Method
from tcm.training.device import Compute

CLASSES = 15  # only the first classes are shown, as in the paper: more would clutter the figure
POINTS = 750  # images of each domain at most
FOLDS = 5  # every image is held out once
LEAST = 10  # images that each domain must have
SEED = 0


class Chosen(NamedTuple):
    """The images of both domains that are embedded, and their classes."""

    source: Tensor  # [n] numbers of source images
    target: Tensor  # [m] numbers of target images
    labels: NDArray[np.int64]  # [n + m], -1 where unknown
    classes: tuple[str, ...]


class Embedding(NamedTuple):
    """The features of the chosen images under one run as points in two dimensions, source first."""

    title: str
    points: NDArray[np.float64]  # [n + m, 2]
    is_target: NDArray[np.bool_]  # [n + m]
    labels: NDArray[np.int64]  # [n + m], -1 where unknown
    classes: tuple[str, ...]
    distance: float  # proxy A-distance of the features
    domains: tuple[str, str]


@explain_out_of_memory("the figure", "free some or set `device` to cpu")
def embed_runs(folders: Sequence[Path], device: str = "auto", quiet: bool = False) -> list[Embedding]:
    """The features of the same images under each of the runs."""
    opened = open_side_by_side(folders, device, quiet)
    chosen = chosen_images(opened.task)
    names = (opened.task.source.name, opened.task.target.name)
    found = []
    for run, title in zip(opened.runs, run_titles(opened.runs, folders), strict=True):
        source, target = (
            run_features(opened.fabric, run.method, store.images[numbers], opened.crop)
            for store, numbers in zip(opened.task, (chosen.source, chosen.target), strict=True)
        )
        points, is_target = tsne(np.concatenate([source, target])), np.arange(len(chosen.labels)) >= len(source)
        distance = proxy_a_distance(source, target)
        found.append(Embedding(title, points, is_target, chosen.labels, chosen.classes, distance, names))
    return found


def chosen_images(task: Task) -> Chosen:
    """Images of the first classes, spread evenly; images of all classes if the target has no labels."""
    known = bool((task.target.labels >= 0).any())
    classes = task.source.classes[:CLASSES] if known else task.source.classes
    numbers = [_of_classes(store.labels, len(classes)) if known else torch.arange(len(store)) for store in task]
    if min(map(len, numbers)) < LEAST:
        found = " and ".join(f"{len(some)} images of {store.name}" for some, store in zip(numbers, task, strict=True))
        raise InputError(f"{found} are too few to embed; name runs with {LEAST} or more in each domain")
    source, target = (
        some[spread_over_classes(store.labels[some], POINTS)].sort().values
        for some, store in zip(numbers, task, strict=True)
    )
    labels = torch.cat([task.source.labels[source], task.target.labels[target]])
    return Chosen(source, target, labels.numpy(), classes)


def _of_classes(labels: Tensor, count: int) -> Tensor:
    return ((labels >= 0) & (labels < count)).nonzero().flatten()


@torch.inference_mode()
def run_features(fabric: Compute, method: Method, images: Tensor, crop: int) -> NDArray[np.float64]:
    """The features [n, features] that the method classifies, of uint8 images [n, size, size, 3]."""
    parts = []
    for some in centre_crop_batches(images, crop, fabric.device):
        with fabric.autocast():
            parts.append(method.features(some).double().cpu())
    return torch.cat(parts).numpy()


def proxy_a_distance(source: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """2 (1 - 2 err) of features [n, f] and [m, f]: 0 if the domains cannot be distinguished, 2 if they always can.

    err is the error of a linear domain classifier on images that it was not trained on, the mean of both domains'
    errors (Ben-David et al., 2007). By chance the distance can be slightly below 0.
    """
    features, domains = np.concatenate([source, target]), np.repeat([0, 1], [len(source), len(target)])
    # Balanced: with unequal domains, always predicting the larger one would look better than chance.
    linear = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    wrong = np.asarray(cross_val_predict(linear, features, domains, cv=folds)) != domains
    error = (wrong[domains == 0].mean() + wrong[domains == 1].mean()) / 2
    return float(2 * (1 - 2 * error))


def tsne(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """t-SNE of features [n, f]: [n, 2], the same every time (van der Maaten and Hinton, 2008)."""
    perplexity = min(30.0, (len(features) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=SEED).fit_transform(features).astype(np.float64)
