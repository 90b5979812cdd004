"""Scores without target labels, in scikit-learn's searches; and the estimator in skada."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit, cross_validate
from sklearn.preprocessing import StandardScaler

import tcm
from tcm.classifier.selection import information, negative_entropy, neighbourhood_density

Data = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def data() -> Data:
    """Two classes in two domains: samples, labels without those of the target, and all labels."""
    rng = np.random.default_rng(0)
    truth = np.tile([0, 1], 60)
    samples = 3 * truth[:, None] + rng.normal(size=(120, 2))
    samples[60:] += 2
    return samples, np.r_[truth[:60], np.full(60, -1)], truth


def test_a_score_is_that_of_the_target_predictions(data: Data):
    samples, labels, truth = data
    estimator = LogisticRegression().fit(samples[:60], truth[:60])
    target = torch.from_numpy(estimator.predict_proba(samples[60:]))
    everything = torch.from_numpy(estimator.predict_proba(samples))
    rules = {"information": information, "entropy": negative_entropy, "snd": neighbourhood_density}
    for rule, score in rules.items():
        scorer = tcm.TargetScorer(rule)
        assert scorer(estimator, samples, labels) == pytest.approx(score(target))
        assert scorer(estimator, samples, truth, sample_domain=np.repeat([1, -1], 60)) == pytest.approx(score(target))
        assert scorer(estimator, samples, sample_domain=np.repeat([1, -1], 60)) == pytest.approx(score(target))
        assert scorer(estimator, samples) == scorer(estimator, samples, truth) == pytest.approx(score(everything))
    with pytest.raises(tcm.InputError, match='`rule` is "accuracy"; give one of information, entropy, snd'):
        tcm.TargetScorer("accuracy")(estimator, samples)


def test_a_grid_search_needs_no_target_labels(data: Data):
    samples, labels, truth = data
    grid = {"method": ["erm", "mcc"], "steps": [1, 60]}
    estimator = tcm.TCMClassifier(device="cpu", hidden_layer_sizes=(16,))
    search = GridSearchCV(estimator, grid, scoring=tcm.TargetScorer(), cv=2).fit(samples, labels)
    assert search.best_params_["steps"] == 60  # one step teaches nothing
    assert search.score(samples, labels) == pytest.approx(tcm.TargetScorer()(search.best_estimator_, samples, labels))
    assert search.best_estimator_.score(samples[60:], truth[60:]) > 0.7


@pytest.fixture
def skada() -> Iterator[Any]:
    """skada, which turns on scikit-learn's routing of metadata for the whole process."""
    before = sklearn.get_config()
    found = pytest.importorskip("skada")
    sklearn.set_config(enable_metadata_routing=True)
    yield found
    sklearn.set_config(**before)


def test_it_works_in_the_pipelines_and_with_the_scorers_of_skada(skada: Any, data: Data):
    from skada import metrics

    samples, labels, truth = data
    domains = np.repeat([1, -2], 60)
    last = tcm.TCMClassifier("mcc", steps=40, device="cpu", hidden_layer_sizes=(16,))
    pipeline = skada.make_da_pipeline(StandardScaler(), last.set_score_request(sample_weight=True))
    pipeline.fit(samples, labels.copy(), sample_domain=domains)
    predicted = pipeline.predict(samples[60:], sample_domain=domains[60:])
    assert np.mean(predicted == truth[60:]) > 0.7
    assert pipeline.score(samples[60:], truth[60:], sample_domain=domains[60:]) == np.mean(predicted == truth[60:])
    scaled = StandardScaler().fit_transform(samples)
    alone = tcm.TCMClassifier("mcc", steps=40, device="cpu", hidden_layer_sizes=(16,)).fit(scaled, labels)
    np.testing.assert_allclose(pipeline.predict_proba(samples), alone.predict_proba(scaled), atol=1e-9)
    scorers = {
        "entropy": metrics.PredictionEntropyScorer(),
        "density": metrics.SoftNeighborhoodDensity(),
        "supervised": metrics.SupervisedScorer(),
        "weighted": metrics.ImportanceWeightedScorer(),
        "embedded": metrics.DeepEmbeddedValidation(),
        "circular": metrics.CircularValidation(),
        "mixed": metrics.MixValScorer(),
        "ours": tcm.TargetScorer(),
    }
    params = {"sample_domain": domains, "target_labels": truth}
    splits = StratifiedShuffleSplit(1, test_size=0.5, random_state=0)
    options: dict[str, Any] = {"params": params, "cv": splits, "scoring": scorers, "error_score": "raise"}
    found = cross_validate(pipeline, samples, labels.copy(), **options)
    assert all(np.isfinite(found[f"test_{name}"]).all() for name in scorers)
    assert found["test_supervised"].mean() > 0.6
    grid = {"tcmclassifier__method": ["erm", "mcc"]}
    search = GridSearchCV(pipeline, grid, scoring=tcm.TargetScorer(), cv=splits)
    assert search.fit(samples, labels.copy(), sample_domain=domains).best_score_ > 0
