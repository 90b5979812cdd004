"""Write a method of your own, register it, and train it like the others.

    python examples/own_method.py

The method is Deep CORAL (Sun and Saenko, 2016): features whose covariance is alike in both domains. To make it part of
the library and of the command line, see docs/adding-a-method.md.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

import tcm
from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem


@dataclass(frozen=True)
class CORALConfig(MethodConfig):
    """The settings of the method."""

    trade_off: float = 1.0
    """Weight of the covariance loss."""


class CORAL(Method, config=CORALConfig):
    """Classification on the source, plus the distance between the two covariance matrices."""

    def __init__(self, problem: Problem, config: CORALConfig):
        super().__init__(problem, config)
        self.trade_off = config.trade_off

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Classification and covariance loss."""
        source, target = self.features(torch.cat([batch.source, batch.target])).chunk(2)
        return {
            "classification": F.cross_entropy(self.classifier(source), batch.labels),
            "covariance": self.trade_off * covariance_distance(source, target),
        }


def covariance_distance(source: Tensor, target: Tensor) -> Tensor:
    """||C_s - C_t||_F^2 / (4 d^2) of features [batch, d], Eq. (1) of Sun and Saenko (2016)."""
    difference = torch.cov(source.T) - torch.cov(target.T)
    return difference.square().sum() / (4 * source.shape[1] ** 2)


def main(out: Path = Path("runs/examples"), steps: int = 200) -> None:
    """Register the method and train it on the built-in digits.

    Args:
        out: Folder for the run.
        steps: Training steps.
    """
    tcm.METHODS["coral"] = CORALConfig
    tcm.train(
        "coral",
        data={"benchmark": "digits"},
        method={"trade_off": 10.0},
        out=out / "coral",
        steps=steps,
        evaluate_every=steps,
    )
    print(f"coral: {tcm.evaluate(out / 'coral')['target']['accuracy']:.1%} of the target images are right")


if __name__ == "__main__":
    tyro.cli(main)
