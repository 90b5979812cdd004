"""The control of TCM: the default form without mechanisms."""

from dataclasses import dataclass
from typing import ClassVar

from tcm.methods.tcm.tcm import TCM, TCMConfig


@dataclass(frozen=True)
class ControlConfig(TCMConfig):
    """Control of tcm: the same training, in which all strong views start from the image itself."""

    uses_counterfactuals: ClassVar[bool] = False


class ControlTCM(TCM, config=ControlConfig):
    """TCM without mechanisms. Its difference to TCM is the effect of the counterfactuals."""
