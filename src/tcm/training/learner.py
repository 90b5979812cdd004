"""What the training loop knows of a model: the few methods it must have."""

from abc import ABC, abstractmethod

from torch import Tensor, nn
from torch.optim import Optimizer

from tcm.data.batch import Batch


class Learner(nn.Module, ABC):
    """A model that the one training loop can train. Its state is its parameters, buffers and optimizers."""

    rate_option: str  # the options that set its learning rates, in words, for the message when training diverges
    worth_compiling: int  # steps after which the time that `accelerate` takes is earned back on a GPU

    @abstractmethod
    def build_optimizers(self) -> dict[str, Optimizer]:
        """Optimizers by name, each at its initial learning rate."""

    @abstractmethod
    def lr_factor(self, progress: float) -> float:
        """What every initial learning rate is multiplied by at this progress in [0, 1]."""

    @abstractmethod
    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One step of every optimizer; the losses by name, as detached scalars on the device."""

    @abstractmethod
    def accelerate(self) -> None:
        """Makes ready for a long run: compiles what is worth it."""
