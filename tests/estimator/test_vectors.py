"""The estimator on feature vectors: what the target is, every method, saving."""

import json
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import tcm
from tcm.estimator.vectors import VectorStream, usable_on_vectors
from tcm.methods import METHODS


class Blobs(NamedTuple):
    """Three classes in the plane; the target is turned and moved."""

    samples: np.ndarray
    labels: np.ndarray  # with -1 for the target
    truth: np.ndarray
    domains: np.ndarray


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 400)
    samples = np.array([[0.0, 0], [4, 0], [0, 4]])[truth] + rng.normal(0, 0.7, (400, 2))
    samples[200:] = samples[200:] @ np.array([[0.8, -0.6], [0.6, 0.8]]) + [1.5, 1.0]
    domains = np.repeat([1, -2], 200)
    return Blobs(samples, np.where(domains > 0, truth, -1), truth, domains)


def short(method: str = "mcc", **settings: Any) -> tcm.TCMClassifier:
    return tcm.TCMClassifier(method, **{"steps": 8, "device": "cpu", **settings})


@pytest.fixture(scope="module")
def fitted(blobs: Blobs) -> tcm.TCMClassifier:
    return short().fit(blobs.samples, blobs.labels)


def test_the_default_adapts(blobs: Blobs):
    target = blobs.samples[200:], blobs.truth[200:]
    found = [
        tcm.TCMClassifier(name, steps=200, device="cpu").fit(blobs.samples, blobs.labels).score(*target)
        for name in ("erm", "tcm")
    ]
    assert found[0] < 0.95 < found[1]


@pytest.mark.parametrize("name", usable_on_vectors())
def test_every_method_trains_predicts_and_is_pickled(name: str, blobs: Blobs):
    estimator = short(name).fit(blobs.samples, blobs.labels)
    found = estimator.predict_proba(blobs.samples[:7])
    assert found.shape == (7, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.predict_proba(blobs.samples[:7]), found)


def test_the_other_methods_say_why_not(blobs: Blobs):
    others = METHODS.keys() - set(usable_on_vectors())
    assert others == {"gta", "baseline", "tcm-paper", "tcm-release"}
    for name in others:
        with pytest.raises(tcm.InputError, match=f"is {name}, which .* but X holds feature vectors; give one of tcm"):
            short(name).fit(blobs.samples, blobs.labels)


@pytest.mark.parametrize(("name", "widths"), [("erm", ()), ("a2lp", ()), ("a2lp", (16, 8))])
def test_frozen_features_are_the_vectors_themselves(name: str, widths: tuple[int, ...], blobs: Blobs):
    estimator = short(name, settings={"frozen": True}, hidden_layer_sizes=widths, steps=None)
    assert estimator.fit(blobs.samples, blobs.labels).score(blobs.samples, blobs.truth) > 0.6


def test_all_ways_to_name_the_target_are_one(blobs: Blobs, fitted: tcm.TCMClassifier):
    expected = fitted.predict_proba(blobs.samples)
    by_domain = short().fit(blobs.samples, blobs.truth, sample_domain=blobs.domains)
    lies = np.where(blobs.domains > 0, blobs.truth, 2)  # labels of the target, which nobody reads
    lied_to = short().fit(blobs.samples, lies, sample_domain=blobs.domains)
    names = np.array(["ant", "bee", "cat"])[blobs.truth]
    texts = short().fit(blobs.samples, np.where(blobs.domains > 0, names, "-1"))
    mixed = short().fit(blobs.samples, np.where(blobs.domains > 0, names.astype(object), -1))
    for other in (by_domain, lied_to, texts, mixed):
        assert np.array_equal(other.predict_proba(blobs.samples), expected)
    assert texts.classes_.tolist() == mixed.classes_.tolist() == ["ant", "bee", "cat"]
    assert set(texts.predict(blobs.samples)) <= {"ant", "bee", "cat"}


def test_the_target_counts(blobs: Blobs, fitted: tcm.TCMClassifier):
    with pytest.warns(UserWarning, match="no samples of the target"):
        alone = short().fit(blobs.samples[:200], blobs.labels[:200])
    assert not np.allclose(alone.predict_proba(blobs.samples), fitted.predict_proba(blobs.samples))


def test_the_random_state_decides_and_the_users_own_is_left_alone(blobs: Blobs, fitted: tcm.TCMClassifier):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    again = short().fit(blobs.samples, blobs.labels)
    assert torch.equal(torch.rand(3), expected)
    assert np.array_equal(again.predict_proba(blobs.samples), fitted.predict_proba(blobs.samples))
    other = short(random_state=np.random.RandomState(3)).fit(blobs.samples, blobs.labels)
    assert not np.array_equal(other.predict_proba(blobs.samples), fitted.predict_proba(blobs.samples))


def test_large_offsets_cost_no_digits(blobs: Blobs, fitted: tcm.TCMClassifier):
    moved = short().fit(blobs.samples + 1e9, blobs.labels)
    np.testing.assert_allclose(moved.predict_proba(blobs.samples + 1e9), fitted.predict_proba(blobs.samples), atol=1e-4)


def test_the_score_leaves_out_what_has_no_label(blobs: Blobs, fitted: tcm.TCMClassifier):
    expected = fitted.score(blobs.samples[:200], blobs.truth[:200])
    assert fitted.score(blobs.samples, blobs.labels) == expected
    weights = np.r_[np.ones(200), np.full(200, 100)]
    assert fitted.score(blobs.samples, blobs.labels, sample_weight=weights) == pytest.approx(expected)
    with pytest.raises(tcm.InputError, match="has no label but -1; use a `TargetScorer`"):
        fitted.score(blobs.samples[200:], blobs.labels[200:])


def test_strong_views_take_values_from_other_rows_of_the_domain():
    rows = torch.arange(400.0).reshape(100, 4)
    stream = VectorStream(rows, torch.zeros(100, dtype=torch.long), rows + 1000, 64, 0, strong=True)
    batch = stream.batch(3)
    assert batch.strong is not None
    assert batch.target_indices is not None
    assert torch.equal(batch.target, rows[batch.target_indices] + 1000)
    for plain, strong, least in ((batch.source, batch.strong.source, 0), (batch.target, batch.strong.target, 1000)):
        changed = (plain != strong).float().mean()
        assert 0.2 < changed < 0.4
        assert torch.equal(strong % 4, plain % 4)  # each value is one of its own feature
        assert least <= strong.min() <= strong.max() < least + 400
    again = stream.batch(3)
    assert torch.equal(again.source, batch.source)
    assert not torch.equal(stream.batch(4).source, batch.source)


def test_it_is_saved_without_pickle_and_loaded(blobs: Blobs, tmp_path: Path):
    table = pd.DataFrame(blobs.samples, columns=["width", "height"])
    names = np.where(blobs.domains > 0, np.array(["ant", "bee", "cat"])[blobs.truth], "-1")
    settings = {"trade_off": np.float64(0.5)}
    estimator = short(settings=settings, hidden_layer_sizes=(8,)).fit(table, names)
    estimator.save(tmp_path / "saved")
    assert sorted(file.name for file in (tmp_path / "saved").iterdir()) == ["estimator.json", "model.safetensors"]
    json.loads((tmp_path / "saved" / "estimator.json").read_text())
    again = tcm.TCMClassifier.load(tmp_path / "saved")
    assert np.array_equal(again.predict_proba(table), estimator.predict_proba(table))
    assert np.array_equal(again.predict(table), estimator.predict(table))
    assert again.feature_names_in_.tolist() == ["width", "height"]
    assert again.get_params() == estimator.get_params()
    again.fit(table, names).save(tmp_path / "saved")  # over itself
    with pytest.raises(ValueError, match="feature names"):
        again.predict(table.rename(columns={"width": "depth"}))
    with pytest.raises(tcm.InputError, match="holds no classifier"):
        tcm.load(tmp_path / "saved")  # which is for images


def test_bad_folders_are_named(fitted: tcm.TCMClassifier, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(tcm.InputError, match="is not empty and holds no saved estimator"):
        fitted.save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(tcm.InputError, match="holds no saved estimator; name a folder"):
        tcm.TCMClassifier.load(tmp_path)
    fitted.save(tmp_path / "saved")
    file = tmp_path / "saved" / "estimator.json"
    for content in ("{", "{}", '{"params": {"colour": 1}}', "[]"):
        file.write_text(content)
        with pytest.raises(tcm.InputError, match=r"estimator\.json is damaged"):
            tcm.TCMClassifier.load(tmp_path / "saved")
    with pytest.raises(NotFittedError):
        short().save(tmp_path / "new")


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "dnan"}, '`method` is "dnan"; give one of erm'),
    "setting": ({"settings": {"tradeoff": 1.0}}, r"`settings\.tradeoff` is not a setting; did you mean"),
    "value": ({"settings": {"temperature": 0.0}}, r"`settings\.temperature` is 0\.0; give more than 0"),
    "steps": ({"steps": 0}, "`steps` is 0; give a whole number, 1 or more"),
    "batch": ({"batch": 1.5}, "`batch` is 1.5; give a whole number, 2 or more"),
    "mechanisms": ({"k": 4}, "`k` is 4, but X holds feature vectors"),
    "width": ({"hidden_layer_sizes": (0,)}, "`hidden_layer_sizes` is 0; give 1 or more"),
    "device": ({"device": "gpu"}, '`device` is "gpu"'),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_setting_is_named(name: str, blobs: Blobs):
    settings, said = MISTAKES[name]
    with pytest.raises(tcm.InputError, match=said):
        short(**settings).fit(blobs.samples, blobs.labels)


@pytest.mark.parametrize(
    ("labels", "domains", "said"),
    [
        (np.full(400, -1), None, "`y` has no label but -1"),
        (np.zeros(400), np.full(400, -1), "`y` has no sample of the source"),
        (np.repeat([1, -1], 200), None, "`y` has only one class"),
        (np.repeat([0, -1], 200), np.ones(400), "is -1 for 200 samples that `sample_domain` counts to the source"),
        (np.repeat([0, 1], 200), np.ones(3), r"`sample_domain` has the shape \[3\].*; give 400 numbers"),
        (np.repeat([0, 1], 200), ["a"] * 400, "`sample_domain` has .*dtype"),
    ],
)
def test_labels_without_a_task_are_refused(labels: np.ndarray, domains: Any, said: str, blobs: Blobs):
    with pytest.raises(tcm.InputError, match=said):
        short().fit(blobs.samples, labels, sample_domain=domains)
