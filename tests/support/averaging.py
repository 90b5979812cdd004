"""A method that exists for the tests alone: the least that uses counterfactuals in training and in prediction."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods import METHODS
from tcm.methods.method import Answer, Method, MethodConfig


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `tcm train averaging` a command of this test."""
    monkeypatch.setitem(METHODS, "averaging", AveragingConfig)


@dataclass(frozen=True)
class AveragingConfig(MethodConfig):
    """The mean over an image and its counterfactuals."""

    uses_counterfactuals: ClassVar[bool] = True
    runs_inverse: ClassVar[bool] = True


class Averaging(Method, config=AveragingConfig):
    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        assert batch.counterfactuals is not None
        source = self.averaged(batch.source, batch.counterfactuals.source)
        target = self.averaged(batch.target, batch.counterfactuals.target)
        entropy = -(target.softmax(dim=1) * target.log_softmax(dim=1)).sum(dim=1).mean()
        return {"classification": F.cross_entropy(source, batch.labels), "entropy": 0.1 * entropy}

    def averaged(self, images: Tensor, made: Tensor) -> Tensor:
        return self.averaged_answer(images, made).logits

    def averaged_answer(self, images: Tensor, made: Tensor) -> Answer:
        views = torch.cat([images[None], made])
        found = super().answer(views.flatten(0, 1))
        logits, features = (part.unflatten(0, views.shape[:2]) for part in (found.logits, found.features))
        return Answer(logits.mean(dim=0), features[0])

    def answer(self, images: Tensor) -> Answer:
        return self.averaged_answer(images, self.inverse_counterfactuals(images))
