"""Every method on the least that a user may have: two classes, one image of a class, no target labels, batches of two.

A run is killed in the middle and continued; it must end with the same model as one that was not.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.killed import train_and_be_killed

from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.data.task import DataConfig
from tcm.mechanisms.train import MechanismsConfig, bank_config, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.methods import METHODS
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import GeneratorConfig
from tcm.training.run_folder import Run, read_json

pytestmark = pytest.mark.filterwarnings("ignore:.*one image")
IMAGES = {"source/cup": 3, "source/hat": 1, "target": 4}
STEPS, SAVED, KILLED = 6, 2, 5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, count in IMAGES.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return DataConfig(source_dir=folder / "source", target_dir=folder / "target", size=32, crop=32)


@pytest.fixture(scope="module")
def mechanisms(data: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Finished runs of stage 1 by their number of mechanisms."""
    found = {}
    for k in (1, 2):
        out = tmp_path_factory.mktemp("mechanisms") / f"k{k}"
        bank = replace(bank_config("paper", small=True), warmup=1)
        bank = replace(bank, generator=GeneratorConfig(width=2, halvings=1, blocks=1), critic=CriticConfig(width=2))
        config = MechanismsConfig(data=data, steps=2, batch=2, k=k, form="paper", bank=bank, device="cpu")
        train_mechanisms(config, out, quiet=True)
        transport(out, device="cpu", quiet=True)
        found[k] = out
    return found


@pytest.mark.parametrize("name", list(METHODS))
def test_a_killed_run_on_little_data_ends_as_one_that_was_not(
    name: str, data: DataConfig, mechanisms: dict[int, Path], tmp_path: Path
):
    method = METHODS[name].for_images(small=True)
    used = mechanisms[method.number_of_mechanisms or 2] if method.uses_counterfactuals else None
    every: dict[str, Any] = {"log_every": 2, "evaluate_every": 3, "save_every": SAVED}
    config = TrainConfig(method=method, data=data, steps=STEPS, batch=2, mechanisms=used, device="cpu", **every)
    train_classifier(name, config, tmp_path / "whole", quiet=True)
    train_and_be_killed(name, config, tmp_path / "killed", KILLED)
    assert not Run(tmp_path / "killed").finished
    train_classifier(name, config, tmp_path / "killed", quiet=True)
    models = [Run(tmp_path / folder).model_file.read_bytes() for folder in ("whole", "killed")]
    assert models[0] == models[1]
    told = [read_json(tmp_path / folder / "evaluation.json") for folder in ("whole", "killed")]
    assert told[0]["target"] == told[1]["target"]
    assert (told[0]["target"]["accuracy"], told[0]["target"]["labelled"]) == (None, 0)
    losses = [
        [{key: value for key, value in row.items() if key.startswith("loss/")} for row in Run(folder).metrics()]
        for folder in (tmp_path / "whole", tmp_path / "killed")
    ]
    assert losses[0] == losses[1]
    assert all(np.isfinite(value) for row in losses[0] for value in row.values())
