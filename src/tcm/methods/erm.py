"""Source only: empirical risk minimisation on the labelled domain. What every adaptation method must beat."""

from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Method, Problem, Recipe


@dataclass(frozen=True)
class ERMConfig:
    """Source only: train on the labelled domain, hope for the best."""

    recipe: Recipe = field(default_factory=Recipe)

    def build(self, problem: Problem) -> "ERM":
        """The method on the problem's backbone."""
        return ERM(problem, self.recipe)


class ERM(Method):
    """Cross-entropy on the source images; the target's are never looked at."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The classification loss alone."""
        return {"classification": F.cross_entropy(self.predict(batch.source), batch.labels)}
