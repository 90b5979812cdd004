"""Sharpness-aware minimisation, for methods whose authors use it: SAM (Foret et al., ICLR 2021) in the adaptive form,
ASAM (Kwon et al., ICML 2021)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Method


class SharpnessAwareMethod(Method):
    """A method whose gradient is taken at the worst point near the weights, if `rho` is more than 0."""

    rho = 0.0  # size of the neighbourhood

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One step by the gradient of the whole objective at the worst point. The losses are those at the weights."""
        if self.rho == 0:
            return super().update(batch, progress, optimizers)

        def losses_with_gradients() -> dict[str, Tensor]:
            losses = self.losses(batch, progress)
            self.zero_grad(set_to_none=True)
            torch.stack(list(losses.values())).sum().backward()
            return {name: loss.detach() for name, loss in {**losses, **self.extra_metrics}.items()}

        found = losses_with_gradients()
        learning = [parameter for parameter in self.parameters() if parameter.grad is not None]
        start = climb(learning, self.rho)
        losses_with_gradients()
        with torch.no_grad():
            for parameter, before in zip(learning, start, strict=True):
                parameter.copy_(before)
        for optimizer in optimizers.values():
            optimizer.step()
        return found


@torch.no_grad()
def climb(parameters: Sequence[Tensor], rho: float) -> list[Tensor]:
    """Moves parameters w with gradients g by rho w^2 g / ||w g||, the norm over all of them, and returns copies of w.

    The step of ASAM, Kwon et al. (2021), for the norm of p = 2: to first order it is where the loss is largest, of all
    points whose distance from w is rho if each coordinate is divided by |w|.
    """
    start = [parameter.clone() for parameter in parameters]
    scaled = [parameter * parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([part.norm() for part in scaled]).norm().clamp_min(1e-12)
    for parameter, w, part in zip(parameters, start, scaled, strict=True):
        parameter.add_(w * part * (rho / norm))
    return start
