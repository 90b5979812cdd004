"""The control of TCM: the default form without mechanisms."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Answer
from tcm.methods.tcm.tcm import TCM, TCMConfig
from tcm.methods.tcm.views import Views, repeated_views


@dataclass(frozen=True)
class ControlConfig(TCMConfig):
    """Control of tcm: the same training with each image in place of its counterfactuals."""

    uses_counterfactuals: ClassVar[bool] = False


class ControlTCM(TCM, config=ControlConfig):
    """TCM without mechanisms. Its difference to TCM is the effect of the counterfactuals."""

    def views(self, batch: Batch) -> Views:
        """The images of a step, each repeated in place of its counterfactuals."""
        return repeated_views(batch, self.config.source_views, self.config.target_views)

    def answer(self, images: Tensor) -> Answer:
        """The prediction on the image alone."""
        return self.answer_fast(images)

    def class_scores(self, images: Tensor) -> Tensor:
        """The logits of the image."""
        return self.predict(images)
