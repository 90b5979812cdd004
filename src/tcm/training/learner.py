"""What the training loop needs of a model: four methods, and a fifth for runs on several processes."""

from abc import ABC, abstractmethod

from torch import Tensor, nn
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.training.processes import Processes


class Learner(nn.Module, ABC):
    """A model that the training loop can train. Its state is its parameters, buffers and optimizers."""

    lr_fields: tuple[str, ...]  # fields of the run's config that set its learning rates, such as "method.recipe.lr"
    min_steps_to_compile: int  # shorter runs on a GPU do not win back the time that `accelerate` takes

    @abstractmethod
    def build_optimizers(self) -> dict[str, Optimizer]:
        """Optimizers by name, each at its initial learning rate."""

    @abstractmethod
    def lr_factor(self, progress: float) -> float:
        """The factor of every initial learning rate at this progress in [0, 1]."""

    @abstractmethod
    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """Takes one step with every optimizer; the losses by name, as detached scalars on the device."""

    @abstractmethod
    def accelerate(self) -> None:
        """Compiles the networks, for a long run."""

    def divide(self, processes: Processes) -> None:
        """Divides the work of a step among the processes of a run. Each of them gets the whole batch.

        By default every process does all of it, which takes as long as with one.
        """
