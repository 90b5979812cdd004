"""Nearest neighbours in feature space: do they have the class that is predicted? This needs no target labels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.classifier.evaluate import TaskPredictions
from tcm.classifier.selection import evenly_spaced

NEIGHBOURS = 10
MOST = 5000  # images of each kind that are compared


def neighbour_agreement(
    features: Tensor, predicted: Tensor, others: Tensor | None, classes: Tensor, count: int = NEIGHBOURS
) -> float:
    """The mean share of the `count` nearest `others` whose class is the predicted one, in [0, 1].

    Near means a high cosine between features [n, width] and the features of the others [m, width]; `classes` [m] are
    theirs. Without `others` the images are compared with each other, and an image is not its own neighbour.
    """
    queries = F.normalize(features.float(), dim=1)
    similarity = queries @ (queries if others is None else F.normalize(others.float(), dim=1)).T
    if others is None:
        similarity.fill_diagonal_(-2.0)  # below every cosine
    nearest = similarity.topk(min(count, similarity.shape[1] - (others is None)), dim=1).indices
    return float((classes[nearest] == predicted[:, None]).double().mean())


def neighbour_agreements(
    predictions: TaskPredictions, labels: Tensor, held_out: Tensor | None
) -> dict[str, float | None]:
    """How often neighbours have the predicted class, for target images and for held-out source images.

    `target`: target images among target images, whose classes are predicted too. `source`: target images among the
    source images of training, whose `labels` [n] are known. `held_out`: held-out source images among those; None if
    there are none.
    """
    source, target = (domain.features for domain in predictions)
    on_source, on_target = (domain.probabilities.argmax(dim=1) for domain in predictions)
    trained = torch.ones(len(labels), dtype=torch.bool) if held_out is None else ~held_out
    known, classes = evenly_spaced(source[trained], MOST), evenly_spaced(labels[trained], MOST)
    queries, guess = evenly_spaced(target, MOST), evenly_spaced(on_target, MOST)
    found: dict[str, float | None] = {
        "target": neighbour_agreement(queries, guess, None, guess) if len(queries) > 1 else None,
        "source": neighbour_agreement(queries, guess, known, classes),
        "held_out": None,
    }
    if held_out is not None:
        kept, kept_guess = evenly_spaced(source[held_out], MOST), evenly_spaced(on_source[held_out], MOST)
        found["held_out"] = neighbour_agreement(kept, kept_guess, known, classes)
    return found
