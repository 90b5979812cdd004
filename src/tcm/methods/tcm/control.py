"""The control of TCM's default form: everything but the mechanisms."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Answer
from tcm.methods.tcm.tcm import TCM, TCMConfig
from tcm.methods.tcm.views import Views, repeated_views


@dataclass(frozen=True)
class ControlConfig(TCMConfig):
    """The control of tcm: the same training on the same batches, with images in place of counterfactuals."""

    uses_counterfactuals: ClassVar[bool] = False


class ControlTCM(TCM, config=ControlConfig):
    """TCM without mechanisms: what it gains over this is what the counterfactuals are worth."""

    def views(self, batch: Batch) -> Views:
        """Each image in place of its counterfactuals."""
        return repeated_views(batch, self.config.source_views, self.config.target_views)

    def answer(self, images: Tensor) -> Answer:
        """The image alone."""
        return self.answer_fast(images)

    def class_scores(self, images: Tensor) -> Tensor:
        """The logits of the image."""
        return self.predict(images)
