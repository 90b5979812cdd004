"""Stage 2: one file per method, and the table of them all.

In: a `Batch` with labels of the source alone. Out: loss terms by name, and logits of target images. Start with
`method.py`, then `dann.py`; docs/adding-a-method.md adds one more.
"""

from tcm.methods.cdan import CDANConfig, CDANEConfig
from tcm.methods.dan import DANConfig
from tcm.methods.dann import DANNConfig
from tcm.methods.erm import ERMConfig
from tcm.methods.mcd import MCDConfig
from tcm.methods.mdd import MDDConfig
from tcm.methods.method import MethodConfig
from tcm.methods.tcm.baseline import BaselineConfig, preset_baseline
from tcm.methods.tcm.tcm import Preset as Preset
from tcm.methods.tcm.tcm import TCMConfig, preset_tcm

METHODS: dict[str, type[MethodConfig]] = {
    "erm": ERMConfig,
    "dan": DANConfig,
    "dann": DANNConfig,
    "cdan": CDANConfig,
    "cdan-e": CDANEConfig,
    "mcd": MCDConfig,
    "mdd": MDDConfig,
    "baseline": BaselineConfig,
    "tcm": TCMConfig,
}
WITH_PRESETS = ("tcm",)


def preset_method(name: str, preset: Preset, small: bool) -> MethodConfig:
    """Where the options of a method start; `small` is for images below 64 pixels and their small network."""
    if name in WITH_PRESETS:
        return preset_tcm(preset, small)
    return preset_baseline(small) if name == "baseline" else METHODS[name]()
