"""Mean losses and the training speed between two rows of metrics.jsonl."""

import time

import torch
from torch import Tensor

from tcm.training.divergence import diverged
from tcm.training.learner import Learner
from tcm.training.run_folder import Run


class LossMeter:
    """Adds up losses on the device. Only `summary` waits for the device."""

    def __init__(self, device: torch.device):
        self.device = device
        self.first_bad = torch.full((), -1, device=device)
        self.reset()

    def reset(self) -> None:
        """Clears the sums and restarts the clock."""
        self.sums: dict[str, Tensor] = {}
        self.finite: dict[int, tuple[list[str], Tensor]] = {}  # by step, the losses' names and whether each is finite
        self.steps = self.images = 0
        self.started = time_on(self.device)

    def add(self, step: int, losses: dict[str, Tensor], images: int) -> None:
        """Adds the losses of one step."""
        for name, loss in losses.items():
            self.sums[name] = self.sums[name] + loss if name in self.sums else loss.float()
        finite = torch.isfinite(torch.stack(list(losses.values())))
        self.finite[step] = list(losses), finite
        self.first_bad = torch.where((self.first_bad < 0) & ~finite.all(), step, self.first_bad)
        self.steps += 1
        self.images += images

    def summary(self, run: Run, learner: Learner) -> dict[str, float]:
        """Mean losses and images per second since the last reset; an error if a loss was not finite."""
        bad = int(self.first_bad)
        if bad >= 0:
            terms = ", ".join(name for name, finite in zip(*self.finite[bad], strict=True) if not finite)
            raise diverged(run, learner, f"the loss is not finite at step {bad + 1} ({terms})")
        seconds = max(time_on(self.device) - self.started, 1e-9)
        # A learner may report more than losses: a name with a slash, such as wins/source/0, is used as it is.
        row = {name if "/" in name else f"loss/{name}": float(total) / self.steps for name, total in self.sums.items()}
        row |= {"images_per_second": self.images / seconds, "seconds": seconds}
        return row | peak_memory(self.device)


def time_on(device: torch.device) -> float:
    """The time in seconds, when all that was sent to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()


def peak_memory(device: torch.device) -> dict[str, float]:
    """The largest GPU memory in GB that this process has used so far; nothing on a CPU."""
    return {"memory": torch.cuda.max_memory_allocated(device) / 1e9} if device.type == "cuda" else {}


def describe(row: dict[str, float]) -> str:
    """The losses and the learning rate of a row, as a short text."""
    losses = [f"{name.removeprefix('loss/')} {value:.3f}" for name, value in row.items() if name.startswith("loss/")]
    return "  ".join([*losses, f"lr {row['lr']:.2g}"])
