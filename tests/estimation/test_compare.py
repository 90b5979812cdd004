import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tcm.errors import InputError
from tcm.estimation import compare as module
from tcm.estimation.compare import compare_runs, most_reliable, used_classes
from tcm.estimation.estimators import agreement
from tcm.estimation.inputs import read_predictions
from tcm.estimation.known_cases import Reliable, Warned, warnings_measured

MakeRun = Callable[..., Path]
SCORES = {
    "confidence": Reliable(0.9, 0.010, 0.1, 5),
    "select/snd": Reliable(0.1, 0.004, 0.1, 5),
    "agreement": Reliable(1.0, 0.0, 0.0, 5),
}


def reliable(correlation: float, regret: float) -> Reliable:
    return Reliable(correlation, regret, regret, 5)


def test_of_scores_with_equal_regret_the_best_correlation_counts():
    assert most_reliable({"a": reliable(0.5, 0.016), "b": reliable(0.7, 0.017), "c": reliable(0.9, 0.04)}) == "b"


def test_used_classes_are_those_of_an_even_share():
    assert used_classes(np.array([0.25, 0.25, 0.25, 0.25])) == pytest.approx(4)
    assert used_classes(np.array([1.0, 0.0, 0.0])) == pytest.approx(1)
    bits = -sum(share * math.log2(share) for share in (0.5, 0.3, 0.2))
    assert used_classes(np.array([0.5, 0.3, 0.2])) == pytest.approx(2**bits)


def test_runs_are_ranked_by_the_most_reliable_score_that_all_have(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    runs = [make_run(name, skill=skill, selection=("snd",)) for name, skill in (("bad", 1), ("good", 4), ("fair", 2))]
    monkeypatch.setattr(module, "reliabilities", lambda: {**SCORES, "confidence": reliable(0.9, 0.001)})
    found = compare_runs(runs)
    assert found.ranked_by == "confidence"
    assert found.scores.keys() == {"confidence", "select/snd"}  # the runs do not differ in the seed
    assert [each.run.name for each in found.runs] == ["good", "fair", "bad"]
    assert found.choices["confidence"] == runs[1]
    good, bad = read_predictions(runs[1]), read_predictions(runs[0])
    assert found.agreement[0, 2] == found.agreement[2, 0] == agreement(good.target, bad.target)
    assert np.allclose(np.diag(found.agreement), 1)
    np.testing.assert_allclose(found.runs[0].shares, np.bincount(good.predicted, minlength=10) / 600)
    np.testing.assert_allclose(found.source_shares, 0.1)


def change(run: Path, rename: Callable[[np.ndarray], np.ndarray]) -> Path:
    """The run with other target probabilities."""
    with np.load(run / "evaluation.npz") as stored:
        arrays = {**stored}
    arrays["probabilities"] = rename(arrays["probabilities"])
    np.savez(run / "evaluation.npz", allow_pickle=False, **arrays)
    return run


def test_collapse_is_named(make_run: MakeRun):
    collapsed = change(make_run("collapsed"), lambda found: np.eye(10, dtype=np.float32)[np.arange(len(found)) % 3])
    found = compare_runs([make_run("whole"), collapsed])
    by_name = {each.run.name: each for each in found.runs}
    assert by_name["whole"].warnings == []
    assert by_name["collapsed"].used_classes == pytest.approx(3)
    (warning,) = by_name["collapsed"].warnings
    assert warning.startswith("collapse: the predictions use about 3 of 10 classes")


def test_an_estimate_below_source_only_is_named_with_how_often_this_was_right(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "warnings_measured", lambda: Warned(8, 6, 3, 30))
    runs = [make_run("erm", method="erm", skill=2), make_run("worse", skill=0.7), make_run("better", skill=5)]
    found = {each.run.name: each for each in compare_runs(runs).runs}
    assert found["erm"].warnings == found["better"].warnings == []
    fall = 100 * (found["erm"].estimate.accuracy - found["worse"].estimate.accuracy)
    (warning,) = found["worse"].warnings
    assert warning.startswith(f"negative transfer: the estimate is {fall:.0f} points below source only")
    assert "6 of 8 such warnings were right" in warning


def test_target_labels_play_no_part(make_run: MakeRun):
    found = []
    for labelled in (True, False):
        runs = [make_run(f"{labelled}/{seed}", labelled=labelled, seed=seed, skill=1 + seed) for seed in (0, 1)]
        if labelled:  # an accuracy of its own would be the most reliable score of all
            assert json.loads((runs[0] / "evaluation.json").read_text())["target"]["accuracy"] is not None
        found.append([(each.run.name, each.score, each.estimate) for each in compare_runs(runs).runs])
    assert found[0] == found[1]


def test_what_cannot_be_compared_is_named(make_run: MakeRun):
    one, other = make_run("one"), make_run("other", images=500)
    with pytest.raises(InputError, match="needs two runs or more, but was given 1"):
        compare_runs([one])
    with pytest.raises(InputError, match=r"other has other target images or classes than .*one; compare runs"):
        compare_runs([one, other])


def test_the_known_warnings_add_up():
    known = warnings_measured()
    assert 0 <= known.right <= known.warned <= known.runs
    assert known.right + known.missed <= known.runs
