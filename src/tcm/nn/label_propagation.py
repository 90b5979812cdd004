"""Label propagation with augmented anchors, A2LP (Zhang et al., 2020), on a sparse graph of nearest neighbours.

Labels spread from labelled to unlabelled points over a graph (Zhou et al., 2004). An anchor is an additional point, the
mean of the unlabelled points that got the same label. The anchors of a round are labelled points in all later rounds:
they bring the labels into the middle of the unlabelled points.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.nn.losses import entropy, in_single

SIMILARITIES_AT_ONCE = 2**24  # in a block of rows: 64 MB
TOLERANCE = 1e-6  # of the residual, relative to the labels
LIMIT = 200  # steps of the conjugate gradient method; at a spreading of 0.5 it needs 15


@dataclass(frozen=True)
class PropagationConfig:
    """Label propagation with augmented anchors; the defaults are its authors'."""

    rounds: int = 6
    """Propagations of the labels. Each but the first has the anchors of those before it."""
    neighbours: int = 20
    """Neighbours of an image in the graph, itself included."""
    spreading: float = 0.5
    """Share of its label that an image takes from its neighbours: alpha of label propagation, less than 1."""


class Neighbours(NamedTuple):
    """The most similar points of every point."""

    similarities: Tensor  # [n, k], cosines
    indices: Tensor  # [n, k]


@torch.no_grad()
def propagated_labels(
    source: Tensor, labels: Tensor, target: Tensor, classes: int, config: PropagationConfig
) -> Tensor:
    """Class probabilities [target, classes] of features [target, d], from labelled features [source, d].

    The algorithm of Zhang et al. (2020): in every round but the first, the anchors of all former rounds are labelled
    points too.
    """
    if target.device.type == "mps":  # which has no sparse matrices
        return propagated_labels(source.cpu(), labels.cpu(), target.cpu(), classes, config).to(target.device)
    with torch.autocast(target.device.type, enabled=False):
        points = F.normalize(in_single(torch.cat([source, target])), dim=1)
        known = F.one_hot(labels, classes).to(points.dtype)
        target, count = points[len(source) :], len(source)
        among_points = nearest(points, points, config.neighbours)
        anchors, of_anchors = points[:0], known[:0]
        found = known.new_zeros(len(target), classes)
        for _ in range(config.rounds):
            graph = normalised_graph(with_anchors(among_points, points, anchors, config.neighbours))
            given = torch.cat([known, known.new_zeros(len(target), classes), of_anchors])
            spread = spread_labels(graph, given, config.spreading)[count : count + len(target)]
            found = as_probabilities(spread)
            new, of_new = class_anchors(target, found)
            anchors, of_anchors = torch.cat([anchors, new]), torch.cat([of_anchors, of_new])
        return found


def confidence(probabilities: Tensor) -> Tensor:
    """1 - H / log(classes): from 0 for equal probabilities to 1 for a certain label, [n, classes] -> [n]."""
    return 1 - entropy(probabilities) / math.log(probabilities.shape[1])


def class_anchors(points: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """One anchor for each class that is the most probable one of a point, and its label, as one-hot rows.

    The anchor is the mean of the points of its class, weighted by their confidence, scaled to length 1.
    """
    classes = probabilities.shape[1]
    weights = F.one_hot(probabilities.argmax(dim=1), classes) * confidence(probabilities)[:, None]
    present = weights.sum(dim=0) > 0
    return F.normalize(weights.T @ points, dim=1)[present], torch.eye(classes).to(points)[present]


def nearest(points: Tensor, others: Tensor, count: int) -> Neighbours:
    """The `count` of the others [m, d] that are most similar to each point [n, d]; all have length 1.

    Similarities are computed for a block of rows at a time, so that the full matrix is never in memory.
    """
    count, rows = min(count, len(others)), max(SIMILARITIES_AT_ONCE // len(others), 1)
    blocks = [(block @ others.T).topk(count, dim=1) for block in points.split(rows)]
    return Neighbours(*(torch.cat([block[part] for block in blocks]) for part in range(2)))


def with_anchors(among_points: Neighbours, points: Tensor, anchors: Tensor, count: int) -> Neighbours:
    """The nearest neighbours of all points and, in the last rows, of the anchors, among points and anchors.

    Similarities between points do not change from round to round, so only those with anchors are computed.
    """
    if not len(anchors):
        return among_points
    values = torch.cat([among_points.similarities, points @ anchors.T], dim=1)
    numbers = torch.arange(len(points), len(points) + len(anchors), device=points.device)
    indices = torch.cat([among_points.indices, numbers.expand(len(points), -1)], dim=1)
    best, where = values.topk(min(count, values.shape[1]), dim=1)
    of_anchors = nearest(anchors, torch.cat([points, anchors]), best.shape[1])
    return Neighbours(
        torch.cat([best, of_anchors.similarities]), torch.cat([indices.gather(1, where), of_anchors.indices])
    )


def normalised_graph(found: Neighbours) -> Tensor:
    """D^-1/2 (W + W^T) D^-1/2 as a sparse matrix [n, n], where D are the sums of the rows of W + W^T.

    W has the similarities of each point to its neighbours; negative ones and those to itself count as 0.
    """
    n, k = found.indices.shape
    rows, columns = torch.arange(n, device=found.indices.device).repeat_interleave(k), found.indices.flatten()
    weights = found.similarities.clamp_min(0).flatten().where(rows != columns, 0.0)
    both = torch.stack([torch.cat([rows, columns]), torch.cat([columns, rows])])
    graph = torch.sparse_coo_tensor(both, weights.repeat(2), (n, n), check_invariants=False).coalesce()
    degrees = torch.sparse.mm(graph, weights.new_ones(n, 1))[:, 0]
    scale = (degrees + 1e-8).rsqrt()
    rows, columns = graph.indices()
    values = graph.values() * scale[rows] * scale[columns]
    return torch.sparse_coo_tensor(graph.indices(), values, (n, n), is_coalesced=True, check_invariants=False)


def spread_labels(graph: Tensor, given: Tensor, spreading: float) -> Tensor:
    """(I - a S)^-1 Y for the graph S, labels Y [n, classes] and a = `spreading`, as in Zhou et al. (2004).

    By the conjugate gradient method, for all classes at the same time: S is symmetric, and its eigenvalues are at most
    1, so the matrix is positive definite.
    """
    tiny = torch.finfo(given.dtype).tiny
    result, residual = torch.zeros_like(given), given
    direction, squares = residual, residual.square().sum(dim=0)
    enough = TOLERANCE**2 * squares
    for _ in range(LIMIT):
        if bool((squares <= enough).all()):
            break
        image = direction - spreading * torch.sparse.mm(graph, direction)
        length = squares / (direction * image).sum(dim=0).clamp_min(tiny)
        result, residual = result + length * direction, residual - length * image
        former, squares = squares, residual.square().sum(dim=0)
        direction = residual + squares / former.clamp_min(tiny) * direction
    return result


def as_probabilities(spread: Tensor) -> Tensor:
    """Rows that add up to 1; equal probabilities for a point that no label reached."""
    spread = spread.clamp_min(0)  # solved up to a tolerance
    total = spread.sum(dim=1, keepdim=True)
    return torch.where(total > 0, spread / total.clamp_min(torch.finfo(total.dtype).tiny), 1 / spread.shape[1])
