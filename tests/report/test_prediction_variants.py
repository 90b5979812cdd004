"""What the page says about prediction variants and about a causal head."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.pages import HEAD, TITLES, page_of, summary_of

MakeRun = Callable[..., Path]


def test_each_variant_has_its_accuracy_and_difference(make_run: MakeRun):
    run = make_run("run", variants=("fast", "f_y alone", "something new"))
    page, accuracy = page_of(run), summary_of(run)["target"]["accuracy"]
    assert TITLES[0] in page.text
    start = page.rows.index(["Prediction", "Accuracy", "Difference in points"])
    reported, fast, alone, new = page.rows[start + 1 : start + 5]
    assert reported[0].startswith("As reported")
    assert reported[1:] == [f"{accuracy:.1%}", "–"]
    assert "Without the counterfactuals of the image" in fast[0]
    assert fast[1:] == [f"{accuracy + 0.05:.1%}", "+5.0"]
    assert alone[0] == "f_y aloneThe head without the proxy function."
    assert new == ["something new", f"{accuracy + 0.15:.1%}", "+15.0"]


def test_a_variant_that_is_worse_has_a_minus(make_run: MakeRun):
    run = make_run("run", variants=("fast",))
    summary = summary_of(run)
    summary["target"]["variants"]["fast"]["accuracy"] = summary["target"]["accuracy"] - 0.012
    (run / "evaluation.json").write_text(json.dumps(summary))
    assert "−1.2" in [row[-1] for row in page_of(run).rows]


@pytest.mark.parametrize(
    "settings", [{}, {"labelled": False, "variants": ("fast",)}, {"finished": False}], ids=["none", "no labels", "half"]
)
def test_without_variants_or_labels_there_is_no_table(make_run: MakeRun, settings: dict):
    text = page_of(make_run("run", **settings)).text
    assert not any(title in text for title in TITLES)


def test_a_run_of_an_older_version_has_no_variants(make_run: MakeRun):
    run = make_run("run")
    summary = summary_of(run)
    del summary["target"]["variants"]
    (run / "evaluation.json").write_text(json.dumps(summary))
    assert TITLES[0] not in page_of(run).text


@pytest.mark.parametrize("finished", [True, False])
def test_a_causal_head_shows_its_last_numbers(make_run: MakeRun, finished: bool):
    text = page_of(make_run("run", head=HEAD, finished=finished)).text
    for number in ("1.83", "11.2", "2.04", "0.512", "30.70%"):
        assert f" {number} " in text
    for name in ("Norm of W1 W3^+", "Norm of W2", "Largest singular value of W3", "Smallest singular value of W3"):
        assert name in text
    assert "The proxies have no effect" not in text
    assert "Head: direct norm" in text  # among the curves


def test_all_singular_values_are_shown_of_a_finished_run(make_run: MakeRun):
    run = make_run("run", head=HEAD)
    assert "singular values of W3" not in page_of(run).text
    summary = {**summary_of(run), "singular_values": {"W3": [2.04, 1.5, 0.512]}}
    (run / "evaluation.json").write_text(json.dumps(summary))
    text = page_of(run).text
    assert "All 3 singular values of W3" in text
    assert "2.04, 1.5, 0.512" in text


def test_what_is_wrong_with_a_head_is_said_in_words(make_run: MakeRun):
    bad = {**HEAD, "norm": 610.0, "lost": 2, "share": 0.001}
    text = page_of(make_run("a", head=bad), make_run("b", seed=1)).text
    assert "W3 is singular: 2 directions of z have no effect" in text
    assert "W1 W3^+ explodes: its norm is 610, and that of W2 is 11.2;" in text
    assert "The proxies have no effect: 0.10% of the variance" in text
    assert text.count(TITLES[1]) == 1
