"""Source only on features that are not trained, and the cache of such features."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.classifier.trained import load_trained
from tcm.data.augment import as_input
from tcm.data.task import DataConfig, Task
from tcm.methods.a2lp import A2LPConfig
from tcm.methods.erm import ERMConfig
from tcm.methods.frozen_erm import STRENGTH, FrozenERM, logistic_regression
from tcm.nn.backbone import SmallNet
from tcm.training.run_folder import Run


@pytest.mark.parametrize("classes", [2, 4])
def test_the_regression_is_at_the_minimum_of_its_loss(classes: int):
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(60, 5, generator=generator), torch.arange(60) % classes
    found = logistic_regression(features, labels, classes)
    weight, bias = (part.double().numpy() for part in found[:2])
    logits = features.double().numpy() @ weight.T + bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    missing = np.eye(classes)[labels.numpy()] - shares
    # At the minimum of sum_i H(y_i, p_i) + |w|^2 / (2 C) the regularisation balances the errors.
    expected = STRENGTH * missing.T @ features.double().numpy()
    np.testing.assert_allclose(weight, expected, atol=0.02)
    np.testing.assert_allclose(missing.sum(axis=0), 0, atol=0.02)


def config_of(method: Any, cache: Path) -> TrainConfig[Any]:
    data = DataConfig(benchmark="digits", cache=cache)
    return TrainConfig(method=method, data=data, device="cpu", batch=8, held_out=0.2)


def test_features_of_a_frozen_network_are_computed_once_for_all_runs(
    digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen: list[int] = []
    forward = SmallNet.forward_features

    def counted(self: SmallNet, images: Tensor) -> Tensor:
        seen.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(SmallNet, "forward_features", counted)
    train_classifier("erm", config_of(ERMConfig(frozen=True), tmp_path / "cache"), tmp_path / "erm", True)
    assert sum(seen) == len(digits.source) + len(digits.target)
    train_classifier("a2lp", config_of(A2LPConfig(frozen=True), tmp_path / "cache"), tmp_path / "a2lp", True)
    assert sum(seen) == len(digits.source) + len(digits.target)

    (row,) = [row for row in Run(tmp_path / "erm").metrics() if "source/accuracy" in row]
    assert row["source/accuracy"] > 0.5  # random features still tell most digits apart
    loaded = load_trained(tmp_path / "erm").method
    assert isinstance(loaded, FrozenERM)
    with torch.no_grad():
        guesses = loaded.predict(as_input(digits.target.images)).argmax(dim=1)
    assert float((guesses == digits.target.labels).float().mean()) == pytest.approx(row["target/accuracy"], abs=0.002)


def test_a_damaged_file_of_features_is_computed_again(tmp_path: Path):
    for name in ("one", "two"):
        train_classifier("erm", config_of(ERMConfig(frozen=True), tmp_path / "cache"), tmp_path / name, True)
        for file in (tmp_path / "cache" / "features").iterdir():
            file.write_bytes(b"damaged")
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        tmp_path / "two" / "model.safetensors"
    ).read_bytes()
