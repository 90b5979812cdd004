import torch

from tcm import __version__
from tcm.training.environment import environment


def test_the_environment_tells_what_is_needed_to_repeat_a_run():
    found = environment("cpu")
    assert found["torch"] == torch.__version__.split("+")[0] or found["torch"] in torch.__version__
    assert found["tcm"] == __version__
    assert {"command", "commit", "python", "device", "started"} <= found.keys()
