import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tcm.errors import InputError
from tcm.estimation import estimate as module
from tcm.estimation.estimate import (
    ESTIMATORS,
    NEED_HELD_OUT,
    Estimate,
    estimate,
    estimate_run,
    estimates,
    read_estimate,
)
from tcm.estimation.estimators import thresholded_confidence
from tcm.estimation.inputs import read_predictions
from tcm.estimation.known_cases import Combination, combinations, reliabilities

MakeRun = Callable[..., Path]


def combination(name: str, weights: dict[str, float], **numbers: float) -> Combination:
    usual = {"intercept": 0.1, "error": 0.06, "half_width": 0.09, "level": 0.9, "coverage": 0.88}
    usual |= {"error_elsewhere": 0.1, "coverage_elsewhere": 0.8}
    return Combination(name, weights, **{**usual, **numbers}, cases=40, tasks=5)  # pyright: ignore


@pytest.fixture
def two_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        combination("with", {"atc": 0.5, "neighbours-source": 0.4}),
        combination("without", {"neighbours-source": 1.0}, half_width=0.5, error=0.1),
    ]
    monkeypatch.setattr(module, "combinations", lambda: found)


def test_the_estimate_is_the_weighted_sum_with_its_interval(make_run: MakeRun, two_combinations: None):
    run = read_predictions(make_run("run", held_out=0.2))
    found = estimate(run)
    source, labels = run.source[run.held_out], run.labels[run.held_out]
    expected = 0.1 + 0.5 * thresholded_confidence(source, labels, run.target) + 0.4 * 0.7
    assert found.accuracy == pytest.approx(expected)
    assert found.low == pytest.approx(max(expected - 0.09, 0))
    assert found.high == pytest.approx(min(expected + 0.09, 1))
    assert (found.estimator, found.error, found.cases, found.held_out) == ("with", 0.06, 40, 120)
    assert found.remark == ""
    assert f"{100 * expected:.0f} % ± 9; on 40 known cases it was off by 6 on average" == found.sentence


def test_without_held_out_images_their_estimators_are_missing_and_another_combination_serves(
    make_run: MakeRun, two_combinations: None
):
    found = estimate(read_predictions(make_run("run")))
    assert found.estimator == "without"
    assert not set(NEED_HELD_OUT) & found.estimators.keys()
    assert "`held_out=0.1` would lower the mean error from 10.0 to 6.0 points" in found.remark
    assert found.accuracy == pytest.approx(0.8)
    assert (found.low, found.high) == (pytest.approx(0.3), 1.0)  # not above 1


def test_it_is_written_into_the_run_and_read_again(make_run: MakeRun):
    run = make_run("run", held_out=0.2)
    assert read_estimate(run) is None
    found = estimate_run(run)
    assert read_estimate(run) == found
    written = json.loads((run / "estimate.json").read_text())
    assert written["sentence"] == found.sentence
    assert 0 <= found.low <= found.accuracy <= found.high <= 1


def test_the_out_of_a_fit_counts_as_its_classifier(make_run: MakeRun, tmp_path: Path):
    make_run("fit/tcm")
    (tmp_path / "fit" / "fit.json").write_text('{"chosen": "tcm"}')
    estimate_run(tmp_path / "fit")
    assert isinstance(read_estimate(tmp_path / "fit"), Estimate)
    assert (tmp_path / "fit" / "tcm" / "estimate.json").exists()


def test_only_runs_that_differ_in_the_seed_alone_are_repetitions(make_run: MakeRun):
    runs = {
        name: read_predictions(make_run(name, **settings))
        for name, settings in {
            "one": {"seed": 0},
            "two": {"seed": 1},
            "longer": {"seed": 2, "steps": 500},
            "other": {"seed": 3, "method": "erm"},
        }.items()
    }
    one, two = runs["one"], runs["two"]
    found = estimates(one, [two, runs["longer"], runs["other"]])
    assert found["agreement"] == pytest.approx((one.predicted == two.predicted).mean())
    assert "agreement" not in estimates(one, [runs["longer"], runs["other"], one])


def test_runs_of_other_images_cannot_agree(make_run: MakeRun):
    one, other = read_predictions(make_run("one")), read_predictions(make_run("other", images=500))
    with pytest.raises(InputError, match=r"other target images or classes than .*one; give runs on the same data"):
        estimates(one, [other])


def test_target_labels_play_no_part(make_run: MakeRun):
    labelled, unlabelled = (make_run(str(labelled), labelled=labelled, held_out=0.2) for labelled in (True, False))
    assert estimate_run(labelled) == estimate_run(unlabelled)


def test_every_estimate_is_a_share_and_is_explained(make_run: MakeRun):
    one, two = (read_predictions(make_run(str(seed), seed=seed, held_out=0.2)) for seed in (0, 1))
    found = estimates(one, [two])
    assert found.keys() == ESTIMATORS.keys()
    assert all(0 <= value <= 1 for value in found.values())


def test_the_known_cases_serve_every_run():
    found = combinations()
    assert all(0 < each.error < each.half_width < 0.5 and each.cases >= 40 and each.tasks >= 3 for each in found)
    assert all(set(each.weights) <= set(ESTIMATORS) for each in found)
    assert found[-1].possible({"confidence": 0.5, "cot": 0.5, "training-cot": 0.5})  # which every run has
    assert [each.error for each in found] == sorted(each.error for each in found)
    assert all(-1 <= each.correlation <= 1 and 0 <= each.regret <= each.worst for each in reliabilities().values())


def spoil(run: Path, name: str, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    with np.load(run / name) as stored:
        arrays = {**stored}
    change(arrays)
    np.savez(run / name, allow_pickle=False, **arrays)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda arrays: arrays.pop("on_source"), "has no predictions for the source.*tcm evaluate"),
        (lambda arrays: arrays.update(probabilities=arrays["probabilities"][:-1]), "does not fit.*tcm evaluate"),
        (lambda arrays: arrays["probabilities"].fill(math.nan), "not finite"),
    ],
)
def test_predictions_that_cannot_be_used_are_named(
    make_run: MakeRun, change: Callable[[dict[str, np.ndarray]], object], says: str
):
    run = make_run("run")
    spoil(run, "evaluation.npz", change)
    with pytest.raises(InputError, match=says):
        estimate_run(run)
    assert not (run / "estimate.json").exists()


def test_a_damaged_estimate_is_named(make_run: MakeRun):
    run = make_run("run")
    (run / "estimate.json").write_text("[]")
    with pytest.raises(InputError, match=r"estimate.json is damaged; repeat tcm estimate"):
        read_estimate(run)
