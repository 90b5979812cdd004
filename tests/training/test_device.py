import logging

import pytest

from tcm.errors import InputError
from tcm.training.device import accelerator_of, has_accelerator, make_fabric


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
