"""Source only: empirical risk minimisation on the labelled domain. What every adaptation method must beat."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig


@dataclass(frozen=True)
class ERMConfig(MethodConfig):
    """Source only: train on the labelled domain alone, which every other method must beat."""


class ERM(Method, config=ERMConfig):
    """Cross-entropy on the source images; the target's are never looked at."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The classification loss alone."""
        return {"classification": F.cross_entropy(self.predict(batch.source), batch.labels)}
