"""ERM: empirical risk minimisation on the source, without adaptation."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.frozen_erm import FrozenERM
from tcm.methods.method import Method, MethodConfig, Problem


@dataclass(frozen=True)
class ERMConfig(MethodConfig):
    """ERM (source only): a classifier that is trained on source images alone, without adaptation."""

    frozen: bool = False
    """Fit only a linear classifier, to the features of the pretrained backbone, in one step."""

    @property
    def trains(self) -> bool:
        """Whether the method trains a network."""
        return not self.frozen

    def build(self, problem: Problem) -> Method:
        """The method that trains, or the frozen one."""
        return FrozenERM(problem, self) if self.frozen else ERM(problem, self)


class ERM(Method, config=ERMConfig):
    """Cross-entropy on source images. Target images are not used."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The classification loss."""
        return {"classification": F.cross_entropy(self.predict(batch.source), batch.labels)}
