"""The generators of mechanisms as files."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from support.exportable import draw_task

from tcm.cli.app import main
from tcm.config import to_json
from tcm.errors import InputError
from tcm.export.export import export_mechanisms
from tcm.mechanisms.bank import BankConfig
from tcm.mechanisms.load import load_mechanisms
from tcm.mechanisms.train import KIND, MechanismsConfig
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import GeneratorConfig
from tcm.training.run_folder import Run

K, SIZE = 2, 24


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of tcm fit, with mechanisms of random weights."""
    place = tmp_path_factory.mktemp("fit")
    bank = BankConfig(generator=GeneratorConfig(4, 1, 1, kernel=3), critic=CriticConfig(width=4, halvings=1))
    config = MechanismsConfig(
        data=draw_task(place / "data", SIZE, 16), k=K, bank=bank, steps=4, device="cpu"
    ).resolved()
    torch.manual_seed(0)
    weights = config.bank.build(K, 16, 4, classes=3).weights()
    weights = {name: 5 * x if name.startswith("mechanisms") else x for name, x in weights.items()}
    about = {"kind": KIND, "k": K, "numbers": [0, 1], "classes": ["cup", "hat", "key"], "config": to_json(config)}
    (place / "fit" / "mechanisms").mkdir(parents=True)
    (place / "fit" / "fit.json").write_text('{"chosen": "tcm"}')
    Run(place / "fit" / "mechanisms").save_model(weights, about)
    return place / "fit"


def test_onnx_transports_to_the_target(fit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "mechanisms.onnx"
    assert main(["export", str(fit), "--what", "mechanisms", "--format", "onnx", "--out", str(file), "-q"]) == 0
    assert "checked on 6 images of Art: the largest difference of pixels" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    images = np.random.default_rng(0).random((5, 3, SIZE, SIZE), dtype=np.float32)
    (found,) = session.run(["counterfactuals"], {"images": images})
    with torch.no_grad():
        expected = load_mechanisms(fit / "mechanisms").bank.transport(torch.from_numpy(images), "target").numpy()
    assert expected.shape == (K, 5, 3, SIZE, SIZE)
    assert np.abs(expected[0] - expected[1]).max() > 0.05
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-4)


def test_pt2_transports_stored_images_to_the_source(fit: Path, tmp_path: Path):
    file = tmp_path / "inverse.pt2"
    made = export_mechanisms(fit / "mechanisms", file, "pt2", to="source", preprocessing=True, quiet=True)
    assert made.checked.passed
    assert (made.checked.images, made.checked.origin) == (8, "Clipart")
    images = np.random.default_rng(0).integers(0, 256, (3, SIZE, SIZE, 3), dtype=np.uint8)
    program = torch.export.load(file)
    found = program.module()(torch.from_numpy(images))
    floats = torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    bank = load_mechanisms(fit / "mechanisms").bank
    with torch.no_grad():
        torch.testing.assert_close(found, bank.transport(floats, "source"), atol=1e-5, rtol=0)
    assert not any("critic" in name for name in program.state_dict)


def test_the_hub_is_for_classifiers(fit: Path, tmp_path: Path):
    with pytest.raises(InputError, match="format` is hub, which is for classifiers"):
        export_mechanisms(fit, tmp_path / "hub", "hub")
    assert not (tmp_path / "hub").exists()
