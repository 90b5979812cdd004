"""Stage 2: one file per method, and the table of all methods.

In: a `Batch`, in which only source images have labels. Out: loss terms by name, and logits of target images. Start with
`method.py`, then `dann.py`. docs/adding-a-method.md shows how to add a method.
"""

from tcm.methods.a2lp import A2LPConfig
from tcm.methods.atdoc import ATDOCConfig
from tcm.methods.baseline import BaselineConfig
from tcm.methods.cada import CADAConfig
from tcm.methods.cdan import CDANConfig, CDANEConfig
from tcm.methods.cst import CSTConfig
from tcm.methods.dan import DANConfig
from tcm.methods.dann import DANNConfig
from tcm.methods.dmrl import DMRLConfig
from tcm.methods.erm import ERMConfig
from tcm.methods.etd import ETDConfig
from tcm.methods.fixmatch import FixMatchConfig
from tcm.methods.gta import GTAConfig
from tcm.methods.gvb import GVBConfig
from tcm.methods.icon import ICONConfig
from tcm.methods.mada import MADAConfig
from tcm.methods.mcc import MCCConfig
from tcm.methods.mcd import MCDConfig
from tcm.methods.mdd import MDDConfig
from tcm.methods.method import MethodConfig
from tcm.methods.self_training import SelfTrainingConfig
from tcm.methods.shot import SHOTConfig
from tcm.methods.symnets import SymNetsConfig
from tcm.methods.tcm.control import ControlConfig
from tcm.methods.tcm.paper import PaperConfig
from tcm.methods.tcm.release import ReleaseConfig
from tcm.methods.tcm.tcm import TCMConfig

# One line registers a method for the command line, the tests, suites, tables, costs and the documentation, in this
# order.
METHODS: dict[str, type[MethodConfig]] = {
    "erm": ERMConfig,
    "dan": DANConfig,
    "dann": DANNConfig,
    "cdan": CDANConfig,
    "cdan-e": CDANEConfig,
    "mcd": MCDConfig,
    "mdd": MDDConfig,
    "mada": MADAConfig,
    "symnets": SymNetsConfig,
    "cada": CADAConfig,
    "etd": ETDConfig,
    "gvb": GVBConfig,
    "a2lp": A2LPConfig,
    "gta": GTAConfig,
    "dmrl": DMRLConfig,
    "mcc": MCCConfig,
    "fixmatch": FixMatchConfig,
    "atdoc": ATDOCConfig,
    "shot": SHOTConfig,
    "cst": CSTConfig,
    "icon": ICONConfig,
    "self-training": SelfTrainingConfig,
    "baseline": BaselineConfig,
    "tcm": TCMConfig,
    "tcm-paper": PaperConfig,
    "tcm-release": ReleaseConfig,
    "tcm-control": ControlConfig,
}
DEFAULT = "tcm"  # the method that `tcm fit` trains
