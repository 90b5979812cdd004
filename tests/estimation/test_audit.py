import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy.stats import beta

from tcm.errors import InputError
from tcm.estimation.audit import (
    NONE,
    UNSURE,
    Sample,
    audit,
    audit_run,
    draw_sample,
    exact_interval,
    note_sample,
    read_audit,
    read_labels,
    sample_csv,
)
from tcm.estimation.audit_page import KEYS, class_keys
from tcm.estimation.inputs import read_predictions

MakeRun = Callable[..., Path]
TEN = Sample("abc", 0, [f"{number}.png" for number in range(10)])
CUPS = dict.fromkeys(TEN.paths, "cup")


def test_the_interval_is_that_of_clopper_and_pearson():
    low, high = exact_interval(81, 100)
    assert low == pytest.approx(beta.ppf(0.025, 81, 20))
    assert high == pytest.approx(beta.ppf(0.975, 82, 19))
    assert exact_interval(0, 5)[0] == 0
    assert exact_interval(5, 5)[1] == 1


def test_accuracy_is_the_share_of_right_predictions():
    labels = {**CUPS, "3.png": "hat", "4.png": NONE}
    found = audit(CUPS, TEN, labels)
    assert (found.right, found.labelled, found.unsure, found.accuracy) == (8, 10, 0, 0.8)
    assert (found.low, found.high) == exact_interval(8, 10)
    assert found.sentence == "8 of 10 labelled images are right: 80 %, 95 % interval 44 to 97 %"


def test_what_cannot_be_labelled_widens_the_interval():
    found = audit(CUPS, TEN, {**CUPS, "3.png": UNSURE, "4.png": "hat"})
    assert (found.right, found.labelled, found.unsure) == (8, 9, 1)
    assert found.low == exact_interval(8, 10)[0]
    assert found.high == exact_interval(9, 10)[1]
    assert "1 could not be labelled" in found.sentence


def test_a_sample_may_end_early_but_has_no_holes():
    first_six = dict.fromkeys(TEN.paths[:6], "cup")
    found = audit(CUPS, TEN, first_six)
    assert (found.labelled, found.unsure) == (6, 0)
    assert (found.low, found.high) == exact_interval(6, 6)
    del first_six["2.png"]
    assert audit(CUPS, TEN, first_six).unsure == 1


def test_a_sample_follows_from_run_number_and_seed(make_run: MakeRun):
    run, other = make_run("run"), make_run("other", images=500)
    one = draw_sample(run, 50, seed=0)
    assert one == draw_sample(run, 50, seed=0)
    assert len(set(one.paths)) == 50
    assert draw_sample(run, 1000, seed=0).paths[:50] == one.paths
    assert len(draw_sample(run, 1000, seed=0).paths) == 600
    others = (run, 49, 0), (run, 50, 1), (other, 50, 0)
    identities = {one.identity, *(draw_sample(*drawn).identity for drawn in others)}
    assert len(identities) == 4


def test_true_labels_give_the_true_accuracy_of_the_sample(make_run: MakeRun, tmp_path: Path):
    run, file = make_run("run"), tmp_path / "labels.csv"
    predictions = read_predictions(run)
    truth = {str(path): str(place % 10) for place, path in enumerate(predictions.paths)}  # as the fake run has them
    sample = draw_sample(run, 600, seed=1)
    note_sample(run, sample)
    assert read_audit(run) is None
    file.write_text(sample_csv(sample, truth))
    found = audit_run(run, file)
    accuracy = json.loads((run / "evaluation.json").read_text())["target"]["accuracy"]
    assert found.accuracy == pytest.approx(accuracy)
    assert found.low < accuracy < found.high
    assert read_audit(run) == found


def test_odd_paths_survive_the_csv(tmp_path: Path):
    odd = Sample("abc", 0, ['a,"b"\nc.png', "☃.png"])
    (tmp_path / "labels.csv").write_text(sample_csv(odd, {odd.paths[0]: "cup"}))
    assert read_labels(tmp_path / "labels.csv", odd, ["cup"]) == {odd.paths[0]: "cup"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has not the columns sample, number, path, label"),
        ("path,label\n1.png,cup\n", "has not the columns"),
        ("sample,number,path,label\nxyz,1,1.png,cup\n", "labels the sample xyz, but the sample of this run is abc"),
        ("sample,number,path,label\nabc,1,99.png,cup\n", "99.png in .* is not in the sample"),
        ("sample,number,path,label\nabc,1,1.png,mug\n", r"calls 1.png mug, which is not a class; give one of cup, hat"),
        ("sample,number,path,label\nabc,1,1.png,\n", "has no label; fill in the column label"),
        ("sample,number,path,label\nabc,1,1.png,(cannot tell)\n", "has no label"),
    ],
)
def test_wrong_labels_are_refused(tmp_path: Path, content: str, says: str):
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(InputError, match=says) as error:
        read_labels(tmp_path / "labels.csv", TEN, ["cup", "hat"])
    assert error.value.field == "labels"


def test_a_missing_file_and_a_missing_sample_are_named(make_run: MakeRun, tmp_path: Path):
    with pytest.raises(InputError, match=r"no.csv cannot be read \(No such file or directory\)"):
        read_labels(tmp_path / "no.csv", TEN, ["cup"])
    with pytest.raises(InputError, match="has no sample; draw one with tcm audit"):
        audit_run(make_run("run"), tmp_path / "no.csv")


def test_a_sample_of_other_images_is_refused(make_run: MakeRun, tmp_path: Path):
    run, other = make_run("run"), make_run("other", images=500)
    note_sample(run, draw_sample(other, 5, seed=0))
    with pytest.raises(InputError, match="is not of its target images; draw it again"):
        audit_run(run, tmp_path / "no.csv")


def test_keys_suggest_the_class():
    assert class_keys(["zero", "0", "one", "1"]) == ["z", "0", "o", "1"]
    assert class_keys(["cat", "cow", "c", "dog"]) == ["a", "o", "c", "d"]
    many = [f"class {number}" for number in range(len(KEYS))]
    assert sorted(class_keys(many)) == sorted(KEYS)
    assert class_keys([*many, "more"]) == []
    assert class_keys(["é", "☃"]) == ["0", "1"]
