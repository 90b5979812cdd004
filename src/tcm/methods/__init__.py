"""The methods, by the name that the command line gives them. See docs/adding-a-method.md for one more."""

from tcm.methods.dann import DANNConfig
from tcm.methods.erm import ERMConfig
from tcm.methods.method import MethodConfig
from tcm.methods.tcm import TCMConfig

METHODS: dict[str, type[MethodConfig]] = {"erm": ERMConfig, "dann": DANNConfig, "tcm": TCMConfig}
