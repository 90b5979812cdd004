import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.fake_runs import OBJECTS
from support.pages import page_of, summary_of

from tcm.errors import InputError
from tcm.report import write_report

MakeRun = Callable[..., Path]
NASTY = ['<b>&"x', "$a$", "_under", "日本語", "new\nline", "' onerror=alert(1)"]


def test_labelled_run_shows_its_numbers(make_run: MakeRun):
    run = make_run("run")
    page, target = page_of(run), summary_of(run)["target"]
    assert f"Target accuracy {target['accuracy']:.1%}" in page.text
    assert f"Mean accuracy per class {target['mean_class_accuracy']:.1%}" in page.text
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
    first = arrays["shown_index"][0]
    confidence = arrays["probabilities"][first].max()
    assert (
        f"True {labels[first]} Predicted {guess[first]} Confidence {confidence:.1%} {arrays['paths'][first]}"
        in page.text
    )
    pairs = {
        (str(t), str(p)): int(((labels == t) & (guess == p)).sum()) for t in range(10) for p in range(10) if t != p
    }
    shown = [row for row in page.rows if (row[0], row[1]) in pairs]
    assert len(shown) == 10
    assert all(int(row[2]) == pairs[row[0], row[1]] for row in shown)
    assert int(shown[0][2]) == max(pairs.values())


def test_unlabelled_run_states_no_accuracy(make_run: MakeRun):
    page = page_of(make_run("run", labelled=False))
    assert "This target has no labels, so no accuracy can be stated." in page.text
    assert "Target accuracy" not in page.text
    assert "label them by hand" in page.text
    for heading in ("Predicted classes", "Confidence", "Most confident predictions", "Least confident predictions"):
        assert heading in page.text
    assert page.text.count("Predicted ") - page.text.count("Predicted classes") == 16


def test_many_classes(make_run: MakeRun):
    run = make_run("run", classes=OBJECTS, images=1300, side=64)
    page = page_of(run)
    assert all(name in page.text for name in OBJECTS)
    assert "A classifier of 65 classes" in page.text
    assert "the number counts images" not in page.text
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
    assert "Nothing was logged yet." in text
    assert "The command was not recorded" in text


def test_several_runs_are_compared(make_run: MakeRun):
    runs = [make_run("a", seed=0), make_run("b", seed=1), make_run("c", method="tcm", skill=6.0)]
    runs.append(make_run("d", method="mcd", finished=False))
    page = page_of(*runs)
    accuracies = [summary_of(run)["target"]["accuracy"] for run in runs[:3]]
    rows = {row[-1]: row for row in page.rows if len(row) == 9}
    assert [rows[name][3] for name in "abc"] == [f"{accuracy:.1%}" for accuracy in accuracies]
    assert rows["d"][:4] == ["mcd", "0", "200 of 400", "–"]
    mean, deviation = 100 * np.mean(accuracies[:2]), 100 * np.std(accuracies[:2], ddof=1)
    seeds = next(row for row in page.rows if row[1] == "2 seeds")
    assert (seeds[0], seeds[3]) == ("dann", f"{mean:.1f} ± {deviation:.1f}%")
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
    assert "dann, method.trade_off 0.5" in [row[0] for row in page.rows]


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
    assert len(html) < 2_000_000
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
