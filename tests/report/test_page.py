import base64
import csv
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_runs import OBJECTS, write_run
from support.pages import Page, page_of, summary_of

from tcm.errors import InputError
from tcm.estimation.audit import audit_run, draw_sample, note_sample, sample_csv
from tcm.estimation.estimate import estimate, estimate_run
from tcm.estimation.inputs import read_predictions
from tcm.estimation.known_cases import warnings_measured
from tcm.report import write_report
from tcm.report.scores import wilson_interval

MakeRun = Callable[..., Path]
NASTY = ['<b>&"x', "$a$", "_under", "日本語", "new\nline", "' onerror=alert(1)"]


def test_labelled_run_shows_its_numbers(make_run: MakeRun):
    run = make_run("run")
    page, target = page_of(run), summary_of(run)["target"]
    assert f"Target accuracy, measured {target['accuracy']:.1%}" in page.text
    assert f"Mean accuracy per class {target['mean_class_accuracy']:.1%}" in page.text
    low, high = wilson_interval(round(600 * target["accuracy"]), 600)
    assert f"{target['accuracy']:.1%} {low:.1%} to {high:.1%}" in page.text
    assert "Measured on all 600 target images" in page.text
    assert "The estimate without labels was" in page.text
    assert "The expected calibration error (ECE) is" in page.text
    assert "A classifier of 10 classes was trained with dann on 2,427 labelled images of mnist" in page.text
    assert "600 images of usps without their labels, in 42 s." in page.text
    assert "Model reported: the last iterate, step 400. Target labels were not used" in page.text
    assert "tcm train dann --seed 0" in page.text
    assert ["method.trade_off", "1.0"] in page.rows
    assert ["data.benchmark", "none"] in page.rows
    assert ["torch", "2.11"] in page.rows


def test_gallery_and_pairs_are_those_of_the_arrays(make_run: MakeRun):
    run = make_run("run")
    page, arrays = page_of(run), np.load(run / "evaluation.npz")
    guess, labels = arrays["probabilities"].argmax(axis=1), arrays["labels"]
    doubt = np.argsort(arrays["probabilities"].max(axis=1), kind="stable")[:24]
    places = []
    for image in doubt:
        second, first = np.sort(arrays["probabilities"][image])[-2:]
        other = np.argsort(arrays["probabilities"][image])[-2]
        shown = f"True {labels[image]} Predicted {guess[image]} Confidence {first:.1%} Or {other} {second:.1%}"
        places.append(page.text.index(f"{shown} {arrays['paths'][image]}"))
    assert places == sorted(places)  # the most doubtful first
    pairs = {
        (str(t), str(p)): int(((labels == t) & (guess == p)).sum()) for t in range(10) for p in range(10) if t != p
    }
    shown = [row for row in page.rows if len(row) == 4 and (row[0], row[1]) in pairs]
    assert len(shown) == 10
    assert all(int(row[2]) == pairs[row[0], row[1]] for row in shown)
    assert int(shown[0][2]) == max(pairs.values())


def test_unlabelled_run_states_an_estimate(make_run: MakeRun):
    run = make_run("run", labelled=False)
    page, found = page_of(run), estimate(read_predictions(run))
    assert f"Target accuracy, estimated {found.accuracy:.1%}" in page.text
    assert f"{found.accuracy:.1%} {found.low:.1%} to {found.high:.1%}" in page.text
    assert f"On {found.cases} known cases the estimate was off by {100 * found.error:.0f} points" in page.text
    assert f"tcm audit {run} --n 100" in page.text
    assert "measured" not in page.text.split("What to do next")[0]
    assert "95% interval" not in page.text  # that of an estimate contained 90% of the known cases
    for heading in ("Uncertain predictions", "Classes", "Most confident predictions", "Confidence"):
        assert heading in page.text
    assert "Confusion matrix" not in page.text
    assert page.text.count("Predicted ") - page.text.count("Predicted Source") == 24 + 12


def test_an_estimate_of_the_run_is_shown_as_it_stands(make_run: MakeRun):
    run = make_run("run", labelled=False)
    estimate_run(run)
    content = json.loads((run / "estimate.json").read_text())
    (run / "estimate.json").write_text(json.dumps({**content, "accuracy": 0.4321, "low": 0.4, "high": 0.5}))
    assert "Target accuracy, estimated 43.2%" in page_of(run).text


def test_an_audit_takes_the_place_of_the_estimate(make_run: MakeRun, tmp_path: Path):
    run = make_run("run", labelled=False)
    sample = draw_sample(run, 40, seed=0)
    note_sample(run, sample)
    (tmp_path / "labels.csv").write_text(sample_csv(sample, dict.fromkeys(sample.paths, "3")))
    found = audit_run(run, tmp_path / "labels.csv")
    text = page_of(run).text
    assert f"Target accuracy, audited {found.accuracy:.1%}" in text
    assert f"{found.accuracy:.1%} {found.low:.1%} to {found.high:.1%}" in text
    assert f"{found.right} of 40 images that a person labelled are right" in text
    assert "The estimate without labels was" in text
    assert "tcm audit" not in text


def test_a_run_without_predictions_for_the_source_has_no_estimate(make_run: MakeRun):
    run = make_run("run", labelled=False)
    arrays = dict(np.load(run / "evaluation.npz"))
    for name in ("on_source", "source_classes", "held_out"):
        del arrays[name]
    np.savez(run / "evaluation.npz", allow_pickle=False, **arrays)
    text = page_of(run).text
    assert "this run has no estimate" in text
    assert f"tcm evaluate {run}" in text


def test_source_accuracy_is_named_by_its_images(make_run: MakeRun):
    run = make_run("a", held_out=0.1)
    arrays = np.load(run / "evaluation.npz")
    right = arrays["on_source"].argmax(axis=1) == arrays["source_classes"]
    held_out = right[arrays["held_out"]].mean()
    assert f"Source accuracy on held-out images, which training did not see: {held_out:.1%}" in page_of(run).text
    assert "Source accuracy on training images: " in page_of(make_run("b")).text


def test_several_sources_are_shown_by_name(make_run: MakeRun):
    run = make_run("run")
    file, summary = run / "evaluation.json", summary_of(run)
    assert "Of each source" not in page_of(run).text
    scores = {"images": 9, "accuracy": 0.5, "mean_class_accuracy": 0.5, "held_out": 2, "held_out_accuracy": 0.25}
    none = {"held_out": 0, "held_out_accuracy": None}
    for art, clip, expected in (
        ({}, {}, "Art 25.0%, <Clip> 75.0%"),
        (none, {}, "Art (none held out), <Clip> 75.0%"),
        (none, none, "Art 50.0%, <Clip> 50.0%"),
    ):
        domains = [
            {**scores, "name": "Art", **art},
            {**scores, "name": "<Clip>", "held_out_accuracy": 0.75, **clip},
        ]
        summary["source"]["domains"] = domains
        file.write_text(json.dumps(summary))
        assert f"Of each source: {expected}." in page_of(run).text


@pytest.mark.parametrize("labelled", [True, False])
def test_class_table_has_shares_of_predictions_and_source(make_run: MakeRun, labelled: bool):
    run = make_run("run", labelled=labelled)
    page, arrays = page_of(run), np.load(run / "evaluation.npz")
    guess, labels = arrays["probabilities"].argmax(axis=1), arrays["labels"]
    head = ["Class", "Accuracy", "Predicted", "True", "Source"] if labelled else ["Class", "Predicted", "Source"]
    start = next(place for place, row in enumerate(page.rows) if row[: len(head)] == head)
    found = {row[0]: dict(zip(page.rows[start], row, strict=True)) for row in page.rows[start + 1 : start + 11]}
    for label in range(10):
        row = found[str(label)]
        assert row["Predicted"] == f"{(guess == label).mean():.1%}"
        assert row["Source"] == f"{(arrays['source_classes'] == label).mean():.1%}"
        if labelled:
            assert row["Accuracy"] == f"{(guess[labels == label] == label).mean():.1%}"
    if labelled:
        accuracies = [float(row["Accuracy"][:-1]) for row in found.values()]
        assert accuracies == sorted(accuracies)


def test_the_model_of_several_is_chosen_by_its_estimate(make_run: MakeRun):
    better, worse = make_run("tcm", method="tcm", skill=4.0), make_run("erm", method="erm", skill=1.0)
    accuracies = [summary_of(run)["target"]["accuracy"] for run in (better, worse)]
    text = page_of(worse, better).text
    assert "tcm , chosen without target labels: it has the highest estimate of 2 runs" in text
    assert f"+{100 * (accuracies[0] - accuracies[1]):.1f} points compared with source only." in text


def test_the_choice_of_a_fit_is_the_answer_also_if_it_does_harm(tmp_path: Path):
    fit = tmp_path / "fit"
    harmful, erm = write_run(fit / "tcm", method="tcm", skill=1.0), write_run(fit / "erm", method="erm", skill=4.0)
    for name in ("predictions.csv", "model.safetensors"):
        (fit / name).write_bytes(b"x" * 2000)
    (fit / "fit.json").write_text(json.dumps({"chosen": "tcm", "reason": "a test says so"}))
    page = Page(write_report([harmful, erm], fit / "report"))
    assert "chosen without target labels: a test says so" in page.text
    assert "TCM with counterfactuals." in page.text
    assert "This model is worse than source only, so adaptation did harm" in page.text
    assert {"../predictions.csv", "../model.safetensors"} <= set(page.attributes("a", "href"))
    assert f"tcm predict {fit} FOLDER" in page.text


def test_an_estimate_below_source_only_is_as_sure_as_such_warnings_were(make_run: MakeRun):
    page = page_of(
        make_run("dann", labelled=False, skill=1.0), make_run("erm", method="erm", labelled=False, skill=4.0)
    )
    assert "adaptation did harm" not in page.text  # the better of the two is the answer
    fit = make_run("x", labelled=False).parent / "fit"
    runs = [
        write_run(fit / name, method=name, labelled=False, skill=skill) for name, skill in (("dann", 2.0), ("erm", 2.2))
    ]
    (fit / "fit.json").write_text(json.dumps({"chosen": "dann", "reason": "a test says so"}))
    text = Page(write_report(runs, fit / "report")).text
    known = warnings_measured()
    assert "points below source only, so adaptation may have done harm" in text
    assert f"{known.right} of {known.warned} such warnings were right on known cases" in text
    assert "use the source-only model" not in text


def test_without_labels_the_table_is_not_explained_by_them(make_run: MakeRun):
    runs = make_run("dann", labelled=False), make_run("erm", method="erm", labelled=False)
    text = page_of(*runs).text
    assert "2,427 labelled images of mnist, 600 images of usps to classify, 10 classes." in text
    assert "Bold" not in text
    assert "Mean per class" not in text


def test_one_step_has_no_curve_and_leaves_no_choice(make_run: MakeRun):
    run = make_run("erm", method="erm", steps=50, selection=("snd", "dev"))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (run / "metrics.jsonl").write_text("".join(json.dumps({**row, "step": 1}) + "\n" for row in rows[-2:]))
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "steps": 1}))
    page = page_of(run, make_run("other", method="dann"))
    assert "ermseed 0, 1 step" in page.rows[1][0]
    assert page_of(run).text.count("Learning curves") == 0
    assert "Which evaluation a rule would have chosen" not in page_of(run).text


def test_predictions_are_inside_the_page_or_beside_it(make_run: MakeRun, tmp_path: Path, monkeypatch: Any):
    run = make_run("run")
    (run / "model.safetensors").write_bytes(b"x" * 200_000)
    page = page_of(run)
    links = {attributes.get("download"): attributes["href"] for tag, attributes in page.tags if tag == "a"}
    inside = base64.b64decode(str(links["predictions.csv"]).removeprefix("data:text/csv;base64,")).decode()
    rows, arrays = list(csv.reader(inside.splitlines())), np.load(run / "evaluation.npz")
    assert rows[0] == ["path", "class", "confidence"]
    assert [row[0] for row in rows[1:]] == arrays["paths"].tolist()
    assert [int(row[1]) for row in rows[1:]] == arrays["probabilities"].argmax(axis=1).tolist()
    assert links["model.safetensors"] == "../run/model.safetensors"
    monkeypatch.setattr("tcm.report.downloads.EMBEDDED", 100)
    beside = Page(write_report([run], tmp_path / "beside"))
    assert "predictions.csv" in beside.attributes("a", "href")
    assert (tmp_path / "beside/predictions.csv").read_bytes().decode() == inside


def test_a_page_of_many_runs_stays_small(make_run: MakeRun):
    runs = [make_run(f"run{seed}", seed=seed, side=90) for seed in range(9)]
    page = page_of(*runs)
    size = (runs[0].parent / "report/index.html").stat().st_size
    assert size < 3_000_000
    assert "Uncertain predictions" in page.text


def test_many_classes(make_run: MakeRun):
    run = make_run("run", classes=OBJECTS, images=1300, side=64)
    page = page_of(run)
    assert all(name in page.text for name in OBJECTS)
    assert "A classifier of 65 classes" in page.text
    assert "These are the classes with the most mistakes" in page.text
    assert any(str(source).startswith("data:image/jpeg") for source in page.attributes("img", "src"))


def test_unfinished_run_says_how_to_go_on(make_run: MakeRun):
    page = page_of(make_run("run", finished=False))
    assert "This run stopped at step 200 of 400." in page.text
    assert "repeat the command" in page.text
    assert "tcm train dann --seed 0" in page.text
    assert "Loss: classification" in page.text


def test_trained_but_not_evaluated(make_run: MakeRun):
    run = make_run("run")
    (run / "evaluation.json").unlink()
    assert "did all 400 steps but has not been evaluated" in page_of(run).text


def test_a_run_that_has_logged_nothing(make_run: MakeRun):
    run = make_run("run", finished=False)
    (run / "metrics.jsonl").unlink()
    (run / "environment.json").unlink()
    text = page_of(run).text
    assert "stopped at step 0 of 400" in text
    assert "Too little was logged for curves yet." in text
    assert "The command was not recorded" in text


def test_several_runs_are_compared(make_run: MakeRun):
    runs = [make_run("a", seed=0), make_run("b", seed=1), make_run("c", method="tcm", skill=6.0)]
    runs.append(make_run("d", method="mcd", finished=False))
    page = page_of(*runs)
    accuracies = [summary_of(run)["target"]["accuracy"] for run in runs[:3]]
    rows = {row[0].split(", ")[-1]: row for row in page.rows if len(row) == 6 and " steps, " in row[0]}
    assert [rows[name][1].split("%")[0] + "%" for name in "abc"] == [f"{accuracy:.1%}" for accuracy in accuracies]
    low, high = wilson_interval(round(600 * accuracies[0]), 600)
    assert rows["a"][1] == f"{accuracies[0]:.1%}{100 * low:.1f} to {high:.1%}"
    assert rows["d"][:2] == ["mcdseed 0, 200 of 400 steps, d", "–"]
    mean, deviation = 100 * np.mean(accuracies[:2]), 100 * np.std(accuracies[:2], ddof=1)
    seeds = next(row for row in page.rows if row[0].endswith("2 seeds"))
    assert (seeds[0], seeds[1]) == ("dann2 seeds", f"{mean:.1f} ± {deviation:.1f}%")
    html = (runs[0].parent / "report/index.html").read_text()
    assert re.findall(r'<td class="number"><strong>([^<]*)', html)[0] == f"{max(accuracies):.1%}"
    assert page.attributes("details", "class").count("run") == 4
    assert {"#run-1", "#run-4"} <= set(page.attributes("a", "href"))


def test_runs_of_other_settings_or_tasks_are_not_averaged(make_run: MakeRun):
    other = make_run("b", seed=1)
    config = json.loads((other / "config.json").read_text())
    config["method"]["trade_off"] = 0.5
    (other / "config.json").write_text(json.dumps(config))
    page = page_of(make_run("a"), other, make_run("c", seed=2, task=("usps", "mnist")))
    assert "2 seeds" not in page.text
    assert "Comparison of 3 runs" in page.text
    assert "mnist → usps: dann, method.trade_off 1.0, seed 0" in page.text
    assert any(row[0].startswith("dann, method.trade_off 0.5seed") for row in page.rows)


def test_user_strings_are_escaped(make_run: MakeRun):
    paths = [f"/ünï/\n{index}<img src=x>\udcff.png" for index in range(600)]
    run = make_run("run", classes=NASTY, paths=paths, task=("<script>alert(1)</script>", "b&w"))
    page = page_of(run)
    assert '<b>&"x' in page.text
    assert "new\\nline" in page.text
    assert "<script>alert(1)</script> → b&w" in page.text
    assert "<img src=x>\\udcff.png" in page.text
    assert "x" not in page.attributes("img", "src")
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "b" not in {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_page_is_self_contained_and_accessible(make_run: MakeRun):
    kinds = ({}, {"labelled": False}, {"finished": False}, {"classes": OBJECTS})
    runs = [make_run(f"run{index}", seed=index, **kind) for index, kind in enumerate(kinds)]
    page = page_of(*runs)
    assert dict(page.tags)["html"] == {"lang": "en"}
    assert all(page.attributes("img", "alt"))
    assert all(str(source).startswith("data:image/") for source in page.attributes("img", "src"))
    assert all(page.attributes("th", "scope"))
    assert all(page.attributes("svg", "aria-label"))
    assert not {"link", "iframe", "object"} & {tag for tag, _ in page.tags}
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    html = (runs[0].parent / "report/index.html").read_text()
    assert "http://" not in html
    assert "https://" not in html
    assert len(html) < 3_000_000
    for headings in (page.headings, page_of(runs[0]).headings):
        levels = [int(heading[1]) for heading in headings]
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_the_same_runs_give_the_same_page(make_run: MakeRun, tmp_path: Path):
    run = make_run("run")
    first, second = write_report([run], tmp_path / "one"), write_report([run], tmp_path / "two")
    assert first == tmp_path / "one/index.html"
    assert first.read_bytes() == second.read_bytes()
    assert [file.name for file in first.parent.iterdir()] == ["index.html"]


def break_config(run: Path) -> None:
    (run / "config.json").write_text("{")


def break_method(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    del config["method_name"]
    (run / "config.json").write_text(json.dumps(config))


def break_summary(run: Path) -> None:
    (run / "evaluation.json").write_text("[]")


def remove_arrays(run: Path) -> None:
    (run / "evaluation.npz").unlink()


def break_arrays(run: Path) -> None:
    (run / "evaluation.npz").write_bytes(b"PK nonsense")


def shorten_classes(run: Path) -> None:
    summary = summary_of(run)
    (run / "evaluation.json").write_text(json.dumps({**summary, "classes": ["a"]}))


@pytest.mark.parametrize(
    ("damage", "file", "remedy"),
    [
        (break_config, "config.json", "restore it"),
        (break_method, "config.json", "has no method_name"),
        (break_summary, "evaluation.json", "repeat"),
        (remove_arrays, "evaluation.npz", "repeat"),
        (break_arrays, "evaluation.npz", "repeat"),
        (shorten_classes, "evaluation.npz", "repeat"),
    ],
)
def test_damaged_runs_name_the_file_and_the_remedy(
    make_run: MakeRun, tmp_path: Path, damage: Callable[[Path], None], file: str, remedy: str
):
    run = make_run("run")
    damage(run)
    with pytest.raises(InputError) as caught:
        write_report([run], tmp_path / "report")
    message = str(caught.value)
    assert str(run / file) in message
    assert remedy in message
    assert "\n" not in message
    assert not (tmp_path / "report").exists()


def test_what_is_no_run_folder(tmp_path: Path):
    with pytest.raises(InputError, match="no run folder is given"):
        write_report([], tmp_path)
    with pytest.raises(InputError, match="missing is not a folder; name the folder of a run"):
        write_report([tmp_path / "missing"], tmp_path)
    with pytest.raises(InputError, match=r"it has no config\.json"):
        write_report([tmp_path], tmp_path)


def test_out_that_is_a_file(make_run: MakeRun, tmp_path: Path):
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match="taken cannot be"):
        write_report([make_run("run")], tmp_path / "taken")
