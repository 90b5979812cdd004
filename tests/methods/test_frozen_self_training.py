"""Self-training on features that are not trained: normalised domains, growing shares of the target."""

import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.classifier.trained import load_trained
from tcm.data.augment import as_input
from tcm.data.task import DataConfig, Task
from tcm.methods.frozen_erm import STRENGTH
from tcm.methods.method import Problem, TaskFeatures
from tcm.methods.self_training import SelfTraining, SelfTrainingConfig, moments, most_confident
from tcm.nn.backbone import Backbone
from tcm.nn.label_propagation import propagated_labels
from tcm.training.run_folder import Run

CLASSES, WIDTH = 3, 6


class Vectors(nn.Identity):
    num_features = WIDTH


def domains(shift: float, scale: float) -> TaskFeatures:
    """Three groups of points; in the target every feature is scaled and shifted, so that raw features mislead."""
    generator = torch.Generator().manual_seed(0)
    centres = 2 * torch.randn(CLASSES, WIDTH, generator=generator)
    labels = torch.arange(60) % CLASSES
    source, target = (centres[labels] + 0.5 * torch.randn(60, WIDTH, generator=generator) for _ in range(2))
    return TaskFeatures(source, labels, scale * target + shift)


def fitted(features: TaskFeatures, rounds: int = 5) -> SelfTraining:
    backbone = Backbone(Vectors(), (0.0,), (1.0,), pretrained=True, shape=(1,))
    method = SelfTrainingConfig(rounds=rounds).build(Problem(CLASSES, backbone, task_features=lambda _: features))
    assert isinstance(method, SelfTraining)
    method.eval()
    method.fit()
    return method


def test_a_shifted_and_scaled_target_is_recognised():
    features = domains(shift=5.0, scale=0.2)
    method = fitted(features)
    found = method.predict(features.target).argmax(dim=1)
    assert float((found == features.labels).float().mean()) > 0.95
    # What the features say without normalisation: the test would mean nothing if it were as good.
    raw = propagated_labels(features.source, features.labels, features.target, CLASSES, method.config.propagation)
    assert float((raw.argmax(dim=1) == features.labels).float().mean()) < 0.7


def of_length_one(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def normalised(given: Tensor, shrinkage: float) -> np.ndarray:
    """The normalisation by hand: standardised, and whitened by the covariance plus a multiple of the unit matrix."""
    values = given.double().numpy()
    sd = values.std(axis=0)
    values = of_length_one((values - values.mean(axis=0)) / (sd + 1e-3 * sd.mean()))
    values -= values.mean(axis=0)
    covariance = values.T @ values / len(values)
    added = shrinkage * np.trace(covariance) / min(values.shape)
    return of_length_one(values @ fractional_matrix_power(covariance + added * np.eye(len(covariance)), -0.5))


@pytest.mark.parametrize("images", [200, 20], ids=["more images than features", "more features than images"])
@pytest.mark.parametrize("shrinkage", [0.1, 30.0])
def test_a_domain_is_standardised_and_its_largest_directions_are_shrunk(images: int, shrinkage: float):
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(40, 40, generator=generator) * torch.linspace(0.1, 3, 40)
    features = torch.randn(images, 40, generator=generator) @ mixing.T + 2
    found = moments(features, shrinkage)(features)
    np.testing.assert_allclose(found.numpy(), normalised(features, shrinkage), atol=2e-3)
    # Whitened more, they are others: the comparison can fail.
    assert np.abs(found.numpy() - normalised(features, shrinkage / 100)).max() > 0.05


def test_the_last_classifier_is_fitted_to_the_source_and_to_all_labels_of_the_target():
    """One round, by hand: normalise, propagate, and fit a logistic regression to both domains."""
    features = domains(shift=1.0, scale=2.0)
    method = fitted(features, rounds=1)
    source, target = (normalised(part, method.config.shrinkage) for part in (features.source, features.target))
    tensors = (torch.from_numpy(part).float() for part in (source, target))
    first, second = tensors
    labels = propagated_labels(first, features.labels, second, CLASSES, method.config.propagation).argmax(dim=1)
    regression = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=10_000)
    regression.fit(np.concatenate([source, target]), np.concatenate([features.labels, labels]))
    expected = regression.predict_proba(target)
    found = method.predict(features.target).softmax(dim=1)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)


def test_the_most_confident_share_is_taken():
    probabilities = torch.tensor([[0.6, 0.4], [0.1, 0.9], [0.5, 0.5], [0.8, 0.2]])
    assert most_confident(probabilities, 0.5).tolist() == [1, 3]
    assert most_confident(probabilities, 0.01).tolist() == [1]
    assert sorted(most_confident(probabilities, 1.0).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("features", [torch.ones(1, 4), torch.ones(5, 4), torch.zeros(3, 4)], ids=str)
def test_features_that_do_not_vary_stay_finite(features: Tensor):
    assert moments(features, shrinkage=30)(features).isfinite().all()


def test_a_run_has_one_step_and_its_model_predicts_as_it_did(digits: Task, tmp_path):
    config = TrainConfig(
        method=SelfTrainingConfig(rounds=2),
        data=DataConfig(benchmark="digits", cache=tmp_path / "cache"),
        device="cpu",
        batch=8,
        held_out=0.2,
    )
    assert config.resolved().steps == 1
    train_classifier("self-training", config, tmp_path / "run", quiet=True)
    (row,) = [row for row in Run(tmp_path / "run").metrics() if "target/accuracy" in row]
    assert row["source/accuracy"] > 0.5
    loaded = load_trained(tmp_path / "run").method
    with torch.no_grad():
        found = loaded.predict(as_input(digits.target.images)).argmax(dim=1)
    assert float((found == digits.target.labels).float().mean()) == pytest.approx(row["target/accuracy"], abs=0.002)
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
