import logging
import subprocess
import sys

import pytest
import torch

from tcm.errors import InputError
from tcm.training.device import accelerator_of, has_accelerator, inference_on, make_fabric


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_device_is_opened_without_a_word(precision: str, monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    for name in ("lightning_fabric", "lightning_fabric.utilities.rank_zero"):
        handler = logging.Handler()
        monkeypatch.setattr(handler, "emit", lambda record: said.append(record.getMessage()))
        monkeypatch.setattr(logging.getLogger(name), "handlers", [handler])
    make_fabric("cpu", precision)
    assert said == []


def test_an_unknown_device_is_not_taken_for_the_cpu():
    with pytest.raises(InputError, match='"gpu"; give one of auto, cpu, cuda'):
        make_fabric("gpu", "fp32")


def test_auto_takes_the_best_device_that_there_is(monkeypatch: pytest.MonkeyPatch):
    for cuda, mps, best in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr("torch.cuda.is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr("torch.backends.mps.is_available", lambda mps=mps: mps)
        assert accelerator_of("auto") == best
        assert accelerator_of("cpu") == "cpu"
        assert has_accelerator("auto") == (best != "cpu")
    with pytest.raises(InputError, match="is mps, but"):
        make_fabric("mps", "fp32")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_inference_computes_as_fabric_does(precision: str):
    network = torch.nn.Linear(64, 8)
    images = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    found = []
    for compute in (make_fabric("cpu", precision), inference_on("cpu", precision)):
        compute.to_device(network)
        with torch.inference_mode(), compute.autocast():
            found.append(network(images.to(compute.device)))
    assert found[0].dtype == found[1].dtype
    assert torch.equal(found[0], found[1])


def test_what_trains_nothing_loads_neither_fabric_nor_the_compiler():
    heavy = ("lightning_fabric", "torch._dynamo", "timm", "sklearn", "scipy", "matplotlib", "pandas", "torchvision")
    code = f"""
import sys
import tcm.cli.runs
from tcm.training.device import inference_on, uncompiled
with uncompiled(), inference_on("cpu", "auto").autocast():
    pass
sys.exit(", ".join(name for name in {heavy!r} if name in sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stderr.strip() == ""
