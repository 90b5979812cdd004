"""Class centroids: a classifier that is fitted to the features of all target images after training."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.methods.tcm.pseudo_labels import divided_by

PASSES = 2  # the first with the predicted probabilities, the second with the nearest centroids
SCALES = (1.0, 1000.0)  # limits of the factor between cosines and logits
HALVINGS = 30  # of the interval in which the factor lies


class CentroidClassifier(nn.Module):
    """Predicts the class whose centroid has the largest cosine with the features of an image.

    The linear classifier was trained on the labels of the source. Centroids follow the target: they are the mean
    features of the images that are predicted to be of a class, as in SHOT (Liang et al., 2020), Section 3.3.
    """

    centroids: Tensor  # [classes, width], of length 1
    scale: Tensor  # [], the factor of the cosines; 0 before `fit`

    def __init__(self, classes: int, width: int):
        super().__init__()
        self.register_buffer("centroids", torch.zeros(classes, width))
        self.register_buffer("scale", torch.zeros(()))

    @property
    def fitted(self) -> bool:
        """Whether there are centroids."""
        # A graph cannot branch on a value. Only finished runs are exported, and they have centroids.
        return torch.compiler.is_exporting() or bool(self.scale > 0)

    @torch.no_grad()
    def fit(self, features: Tensor, probabilities: Tensor) -> None:
        """Computes the centroids from features [n, width] and predictions [n, classes] of all target images."""
        features = F.normalize(features, dim=1)
        shares = divided_by(probabilities.mean(dim=0), probabilities)
        for _ in range(PASSES):
            found = F.normalize(shares.T @ features, dim=1)
            # A class of which no image is the nearest keeps its centroid.
            self.centroids.copy_(torch.where(shares.sum(dim=0)[:, None] > 0, found, self.centroids))
            shares = F.one_hot(self.cosines(features).argmax(dim=1), len(self.centroids)).to(features.dtype)
        self.scale.fill_(matching_scale(self.cosines(features), float(probabilities.amax(dim=1).mean())))

    def cosines(self, features: Tensor) -> Tensor:
        """The cosines [batch, classes] between features [batch, width] and the centroids."""
        return F.normalize(features, dim=1) @ self.centroids.T

    def forward(self, features: Tensor) -> Tensor:
        """Logits [batch, classes] of features [batch, width]."""
        return self.scale * self.cosines(features)


def matching_scale(cosines: Tensor, confidence: float) -> float:
    """The factor at which the softmax of cosines [n, classes] has this mean confidence, so that probabilities are as
    sure as those of the linear classifier."""
    low, high = SCALES
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        sure = float((middle * cosines).softmax(dim=1).amax(dim=1).mean())
        low, high = (middle, high) if sure < confidence else (low, middle)
    return low
