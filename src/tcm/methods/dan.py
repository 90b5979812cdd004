"""DAN: deep adaptation networks (Long et al., ICML 2015)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.nn.losses import multi_kernel_mmd


@dataclass(frozen=True)
class DANConfig(MethodConfig):
    """DAN: features with the same mean embedding in both domains, by several kernels (Long et al., 2015)."""

    trade_off: float = 1.0
    """Weight of the distance between the mean embeddings."""


class DAN(Method, config=DANConfig):
    """Classification on the source, plus the distance between the mean embeddings of both domains' features."""

    def __init__(self, problem: Problem, config: DANConfig):
        super().__init__(problem, config)
        self.trade_off = config.trade_off

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification loss, and the distance between the bottleneck features of both domains."""
        # One pass over both domains: batch normalisation sees them together.
        features = self.features(torch.cat([batch.source, batch.target]))
        source, target = features.split([len(batch.source), len(batch.target)])
        return {
            "classification": F.cross_entropy(self.classifier(source), batch.labels),
            "distance": self.trade_off * multi_kernel_mmd(source, target),
        }
