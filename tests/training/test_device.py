import logging

import pytest

from tcm.errors import InputError
from tcm.training.device import make_fabric


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
