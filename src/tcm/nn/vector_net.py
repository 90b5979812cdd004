"""A small network for feature vectors, in the place of the backbone for images."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from tcm.nn.backbone import Backbone


class VectorNet(nn.Sequential):
    """Linear layers with ReLU: vectors [batch, inputs] to [batch, last width]. Without widths, the identity."""

    def __init__(self, inputs: int, widths: Sequence[int]):
        layers: list[nn.Module] = []
        for narrow, wide in pairwise([inputs, *widths]):
            layers += [nn.Linear(narrow, wide), nn.ReLU()]
        super().__init__(*layers)
        self.num_features = [inputs, *widths][-1]


def vector_backbone(inputs: int, widths: Sequence[int]) -> Backbone:
    """A backbone for vectors [batch, inputs]. Its mean is 0 and its standard deviation 1 until they are set."""
    network = VectorNet(inputs, widths)
    return Backbone(network, (0.0,) * inputs, (1.0,) * inputs, pretrained=False, shape=(inputs,))
