"""Methods on the features of a backbone that is not trained."""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Answer, Method, MethodConfig, Problem
from tcm.nn.losses import in_single


class FrozenMethod(Method):
    """Fits something to the features of all images in the first step. Later steps change nothing.

    The features are the mean and the maximum of each channel over the positions in the image. All frozen methods read
    the same ones, so that they are computed once; not all use both.
    """

    def __init__(self, problem: Problem, config: MethodConfig):
        super().__init__(problem, config)
        del self.bottleneck, self.classifier
        self.backbone.requires_grad_(False)
        self.backbone.add_maximum()
        # Without this a ResNet-50 is slower on a CPU too: 0.7 times as fast in fp32, 0.3 in bf16.
        self.backbone.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    @property
    @abstractmethod
    def fitted(self) -> bool:
        """Whether `fit` was called."""

    @abstractmethod
    def fit(self) -> None:
        """Fits the method to all images, in evaluation mode."""

    @abstractmethod
    def answer_of(self, features: Tensor) -> Answer:
        """The answer for features [batch, width of the backbone], in single precision."""

    def means(self, features: Tensor) -> Tensor:
        """The means of the channels alone, [batch, channels]: what the backbone was trained to classify by."""
        return features[:, : self.backbone.features]

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """Fits the method if this is the first step."""
        if not self.fitted:
            self.eval()
            with torch.autocast(self.backbone.mean.device.type, enabled=False):
                self.fit()
            self.train()
        return self.losses(batch, progress)

    def features(self, images: Tensor) -> Tensor:
        """The features of the backbone: [batch, its width]."""
        return in_single(self.backbone(images))

    def answer(self, images: Tensor) -> Answer:
        """The answer for images, by their features."""
        features = self.features(images)
        with torch.autocast(features.device.type, enabled=False):
            return self.answer_of(features)
