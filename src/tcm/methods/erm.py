"""ERM: empirical risk minimisation on the source, without adaptation."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig


@dataclass(frozen=True)
class ERMConfig(MethodConfig):
    """ERM (source only): a classifier that is trained on source images alone, without adaptation."""


class ERM(Method, config=ERMConfig):
    """Cross-entropy on source images. Target images are not used."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The classification loss."""
        return {"classification": F.cross_entropy(self.predict(batch.source), batch.labels)}
