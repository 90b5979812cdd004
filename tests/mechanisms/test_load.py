"""What stage 2 is given of a finished and transported run."""

import shutil
from pathlib import Path

import pytest
import torch

from tcm.cli.app import main
from tcm.config import to_json
from tcm.data.augment import as_input
from tcm.data.task import Task
from tcm.errors import InputError
from tcm.mechanisms.load import build_inverse, load_for_task, load_mechanisms

K = 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mechanisms") / "run"
    options = ["--data.benchmark", "digits", "--steps", "10", "--batch", "4", "--k", str(K), "--device", "cpu", "-q"]
    assert main(["mechanisms", *options, "--out", str(folder)]) == 0
    assert main(["transport", str(folder), "--device", "cpu", "-q"]) == 0
    return folder


def test_counterfactuals_and_inverse_mechanisms_belong_together(run: Path, digits: Task):
    given = load_for_task(run, digits, crop=32)
    for made, store in zip(given.transported, digits, strict=True):
        assert made.shape == (len(store), K, 32, 32, 3)
    made = given.inverse(as_input(digits.target.images[:4]))
    stored = as_input(given.transported[1][:4]).transpose(0, 1)
    torch.testing.assert_close(made, stored, rtol=0, atol=1 / 255)
    assert torch.equal(made, load_mechanisms(run).bank.transport(as_input(digits.target.images[:4]), to="source"))


def test_other_crops_are_fine_if_the_networks_return_them_whole(run: Path, digits: Task):
    assert load_for_task(run, digits, crop=28).inverse(torch.rand(1, 3, 28, 28)).shape == (K, 1, 3, 28, 28)
    with pytest.raises(InputError, match=r"`data.crop` is 27, but the mechanisms of .*/run need a multiple of 2"):
        load_for_task(run, digits, crop=27)


def test_what_a_saved_model_says_rebuilds_its_networks(run: Path, digits: Task):
    given = load_for_task(run, digits, crop=32)
    empty = build_inverse(K, to_json(given.generator), "here")
    empty.load_state_dict(given.inverse.state_dict())
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(empty(images), given.inverse(images))
    with pytest.raises(InputError, match='here has an unknown key "wdith"; did you mean "width"'):
        build_inverse(K, {"wdith": 8}, "here")


@pytest.mark.parametrize("noted", [True, False])  # without a note of its images it is the store that tells
def test_the_mechanisms_of_a_task_serve_its_reverse(run: Path, digits: Task, noted: bool, tmp_path: Path):
    if not noted:
        run = Path(shutil.copytree(run, tmp_path / "run"))
        (run / "inputs.json").unlink()
    there, back = load_for_task(run, digits, crop=32), load_for_task(run, Task(digits.target, digits.source), crop=32)
    assert torch.equal(back.transported[0][:9], there.transported[1][:9])
    assert torch.equal(back.transported[1][:9], there.transported[0][:9])
    some = as_input(digits.source.images[:4])  # the target of the reverse
    assert torch.equal(back.inverse(some), load_mechanisms(run).bank.transport(some, to="target"))
    assert not torch.equal(back.inverse(some), there.inverse(some))
