"""The page of a suite: all rows, failed runs, quoted numbers, and figures or the reasons why they are missing."""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.pages import Page

from tcm.bench.config import SuiteConfig
from tcm.bench.figures import suite_figures
from tcm.bench.finished import finished_runs
from tcm.bench.report import rule_rows, settings_rows, write_suite_report
from tcm.results.store import ResultRow, read_rows
from tcm.results.table import result_tables
from tcm.training.run_folder import Run, read_json

FIGURES = ("accuracy-digits", "embedding-digits", "activation-digits", "activation-wrong-digits", "mechanisms-digits")
CONFIG = SuiteConfig(device="cpu", k=2)


def rows_of(suite: Path) -> list[ResultRow]:
    return list(read_rows([suite / "results.csv"]))


def written(suite: Path, rows: Sequence[ResultRow], failed: Mapping[str, str] | None = None) -> Page:
    tables = result_tables(rows)
    return Page(write_suite_report("digits", CONFIG, suite / "results.csv", rows, tables, failed or {}, quiet=True))


@pytest.fixture
def copied(suite_page: Path, tmp_path: Path) -> Path:
    """A copy of the suite with its figures, for a test to change."""
    return Path(
        shutil.copytree(
            suite_page.parents[1],
            tmp_path / "copy",
            ignore=shutil.ignore_patterns("transported", "state.pt", "logs"),
            copy_function=shutil.copy2,
        )
    )


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcm.bench.report.suite_figures", lambda *words: [])


def test_the_page_of_the_command(suite_page: Path):
    page = Page(suite_page)
    accuracy = {row["method"]: row for row in rows_of(suite_page.parents[1]) if row["selection"] == "last"}
    for method, row in accuracy.items():
        assert [method, f"{float(row['accuracy']):.1f}"] in page.rows
    assert "2 finished runs of 2 methods (erm, tcm) on 1 task (digits source → digits target), seed 0." in page.text
    assert f"Measured with commit {accuracy['erm']['commit']} and PyTorch {accuracy['erm']['torch']}" in page.text
    assert ["erm", "1", "4", "8", "–", "–"] in page.rows
    assert ["tcm", "1", "4", "8", "2", "2"] in page.rows
    assert "tcm bench digits --methods erm,tcm" in page.text
    assert "Failed" not in page.text
    assert "Not drawn" not in page.text
    assert ["tcm", "128"] in [row[:2] for row in page.rows]  # images that pass its backbone: the costs


def test_the_page_refers_to_nothing_outside_itself(suite_page: Path):
    page = Page(suite_page)
    assert len(page.attributes("img", "src")) == 4
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,"))
    assert set(re.findall(r"url\((.)", suite_page.read_text())) <= {"#"}
    assert suite_page.stat().st_size < 2e6


def test_every_figure_is_there_and_not_blank(suite_page: Path):
    folder = suite_page.parents[1] / "figures"
    assert {file.name for file in folder.iterdir()} == {
        "shown.json",
        *(f"{name}{kind}" for name in FIGURES for kind in (".png", ".svg")),
    }
    for name in FIGURES:
        with Image.open(folder / f"{name}.png") as image:
            assert np.asarray(image.convert("L")).std() > 5
        assert len(re.findall("<(path|use|image)", (folder / f"{name}.svg").read_text())) > 20
    assert "<svg" in suite_page.read_text()


def test_finished_pictures_are_not_drawn_again(copied: Path, few_points: None, monkeypatch: pytest.MonkeyPatch):
    def never(*words: object, **named: object) -> None:
        raise AssertionError("drawn again")

    for name in ("embed_runs", "compare_runs", "run_galleries"):
        monkeypatch.setattr(f"tcm.bench.figures.{name}", never)
    assert "Not drawn" not in written(copied, rows_of(copied)).text
    os.utime(copied / "runs/digits/erm-s0/model.safetensors")
    page = written(copied, rows_of(copied))
    assert page.text.count("Not drawn: drawn again.") == 3  # the mechanisms are those of before
    assert not (copied / "figures" / "embedding-digits.png").exists()


def test_a_figure_that_fails_costs_nothing_else(copied: Path, few_points: None, monkeypatch: pytest.MonkeyPatch):
    def fails(*words: object, **named: object) -> None:
        raise RuntimeError("no <memory>")

    shutil.rmtree(copied / "figures")
    (copied / "mechanisms/digits/paper-k2/model.safetensors").write_bytes(b"nonsense")
    monkeypatch.setattr("tcm.bench.figures.compare_runs", fails)
    page = written(copied, rows_of(copied))
    assert "Where the models look, digits Not drawn: no <memory>." in page.text
    assert "model.safetensors is damaged" in page.text
    assert len(page.attributes("img", "src")) == 1
    assert {file.stem for file in (copied / "figures").glob("*.png")} == {"accuracy-digits", "embedding-digits"}


def test_without_tcm_the_figures_that_need_it_are_left_out(copied: Path):
    for folder in ("figures", "mechanisms", "runs/digits/tcm-k2-s0"):
        shutil.rmtree(copied / folder)
    page = written(copied, [row for row in rows_of(copied) if row["method"] == "erm"])
    assert page.text.count("Not drawn: this figure needs a finished run of tcm") == 3
    assert "Not drawn: there are no finished mechanisms." in page.text
    assert {file.stem for file in (copied / "figures").iterdir()} == {"accuracy-digits"}


def test_several_numbers_of_mechanisms_have_a_figure_of_their_own(copied: Path):
    run = Run(copied / "runs/digits/tcm-k3-s0")
    shutil.copytree(copied / "runs/digits/tcm-k2-s0", run.folder)
    tensors, about = run.load_model()
    run.save_model(tensors, {**about, "k": 3})
    found = suite_figures(copied, finished_runs("digits", copied), 2, "cpu", quiet=True)
    figures = {figure.name: figure for figure in found}
    assert list(figures) == ["accuracy-digits", "k", *FIGURES[1:]]
    assert not any(figure.missing for figure in found)
    assert "k, the number of mechanisms" in figures["k"].svg
    assert re.findall(r">(erm|tcm[^<]*)<", figures["accuracy-digits"].svg) == ["erm", "tcm"]  # k = 2 alone
    assert (copied / "figures/k.png").exists()


def copy_as_task(copied: Path, suite: Path, task: str, source: str, target: str, pair: str) -> None:
    """Copies the runs of the digits into another suite, as those of another task."""
    for run in (copied / "runs/digits").iterdir():
        folder = Path(shutil.copytree(run, suite / "runs" / task / run.name))
        evaluation, config = (read_json(folder / name) for name in ("evaluation.json", "config.json"))
        evaluation["source"]["name"], evaluation["target"]["name"] = source, target
        if config["mechanisms"]:
            config["mechanisms"] = f"/elsewhere/mechanisms/{pair}/paper-k2"
        (folder / "evaluation.json").write_text(json.dumps(evaluation))
        (folder / "config.json").write_text(json.dumps(config))


def test_of_many_tasks_the_first_has_all_figures(copied: Path, few_points: None):
    shutil.rmtree(copied / "figures")
    (copied / "mechanisms/digits").rename(copied / "mechanisms/A-C")
    copy_as_task(copied, copied, "A2C", "Art", "Clipart", "A-C")
    copy_as_task(copied, copied, "C2A", "Clipart", "Art", "A-C")
    shutil.rmtree(copied / "runs/digits")
    rows = rows_of(copied)
    file = write_suite_report("office-home", CONFIG, copied / "results.csv", rows, result_tables(rows), {}, quiet=True)
    drawn = {file.stem for file in (copied / "figures").glob("*.svg")}
    assert drawn == {
        *("accuracy-A2C", "accuracy-C2A", "embedding-A2C", "mechanisms-A-C"),
        *("activation-A2C", "activation-wrong-A2C"),
    }
    assert "only for the first task, A2C." in Page(file).text
    assert "<summary>Accuracy over training, C2A</summary>" in file.read_text()
    assert "<summary>Accuracy over training, A2C</summary>" not in file.read_text()


def test_distances_that_stage_1_measured_are_drawn_for_every_pair(copied: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tcm.bench.figures.picture_plans", lambda *words: [])
    suite = copied / "watched"
    copy_as_task(copied, suite, "A2C", "Art", "Clipart", "A-C")
    copy_as_task(copied, suite, "C2A", "Clipart", "Art", "A-C")
    copy_as_task(copied, suite, "A2P", "Art", "Product", "A-P")
    for pair in ("A-C", "A-P"):
        run = Run(suite / "mechanisms" / pair / "paper-k2")
        shutil.copytree(copied / "mechanisms/digits/paper-k2", run.folder)
        config = read_json(run.config_file)
        run.config_file.write_text(json.dumps({**config, "watch": {**config["watch"], "images": 2}}))
        measured = {f"frechet/{to}/{number}": 3.0 - number for to in ("source", "target") for number in (1, 2)}
        run.metrics_file.write_text(
            "\n".join(json.dumps({"step": step, "frechet/untouched": 4.0, **measured}) for step in (1, 2))
        )
    (suite / "mechanisms/A-P/paper-k2/metrics.jsonl").write_text("")
    found = suite_figures(suite, finished_runs("office-home", suite), 2, "cpu", quiet=True)
    first, second = found[3:]
    assert [first.name, second.name] == ["distances-A-C", "distances-A-P"]
    assert "Frechet distance" in first.svg
    assert second.missing == "Not drawn: no distances were measured."
    assert (first.folded, second.folded) == (False, True)


def test_seeds_are_counted_where_rows_differ(copied: Path, no_figures: None):
    erm = [row for row in rows_of(copied) if row["method"] == "erm"]
    rows = [{**row, "accuracy": "20.00"} for row in rows_of(copied)]
    rows += [{**row, "seed": seed, "accuracy": "24.00"} for row in erm for seed in ("1", "10")]
    page = written(copied, rows)
    assert ["erm", "22.7 ± 2.3"] in page.rows
    assert ["tcm", "20.0 (n = 1)"] in page.rows
    assert ["erm", "3", "4", "8", "–", "–"] in page.rows
    assert "over 3 seeds" in page.text
    assert "4 finished runs of 2 methods (erm, tcm) on 1 task" in page.text
    assert "seeds 0, 1, 10." in page.text


def test_failed_runs_and_names_are_shown_and_escaped(copied: Path, no_figures: None):
    rows = [{**row, "source": "<b>art\x07", "device": "a & b"} for row in rows_of(copied)]
    page = written(copied, rows, {"runs/digits/dann-s0": "no <i>memory\x1b"})
    text = (copied / "report" / "index.html").read_text()
    assert "2 finished runs, 1 failed, of 2 methods" in page.text
    assert "1 run failed." in page.text
    assert "runs/digits/dann-s0 : no <i>memory\\x1b" in page.text
    assert "<b>art\\x07 → digits target" in page.text
    assert "on a & b." in page.text
    assert "<i>" not in text
    assert "<b>" not in text
    assert "\x07" not in text
    assert "\x1b" not in text


def test_quoted_numbers_are_marked_and_the_oracle_is_never_bold(copied: Path, no_figures: None):
    rows = [{**row, "benchmark": "ImageCLEF-DA", "task": "I>P"} for row in rows_of(copied)]
    rows = [{**row, "accuracy": "99.90"} if row["selection"] == "oracle" else row for row in rows]
    page = written(copied, rows)
    assert ["TCM (quoted)", "79.9 ± 0.4"] in [row[:2] for row in page.rows]
    assert ["tcm (oracle)", "99.9"] in [row[:2] for row in page.rows]
    assert "quoted: as printed in the paper (Tables 2 and 4), not measured here." in page.text
    assert "oracle: selected by accuracy on the target's labels" in page.text
    text = (copied / "report" / "index.html").read_text()
    bodies = dict(re.findall(r'<tbody class="(\w+)">(.*?)</tbody>', text, flags=re.DOTALL))
    assert {kind: "<strong>" in body for kind, body in bodies.items()} == {
        "quoted": False,
        "measured": True,
        "oracle": False,
    }


MakeRow = Callable[..., ResultRow]


@pytest.fixture
def make_row(suite_page: Path) -> MakeRow:
    """A row of tcm with some columns of its own."""
    tcm = next(row for row in rows_of(suite_page.parents[1]) if row["method"] == "tcm" and row["selection"] == "last")
    return lambda **columns: {**tcm, **columns}


def test_rules_are_compared_with_the_oracle_in_the_same_runs(make_row: MakeRow):
    found = rule_rows(
        [
            make_row(seed="0", selection="last", accuracy="50"),
            make_row(seed="1", selection="last", accuracy="70"),
            make_row(seed="1", selection="snd", accuracy="64"),
            make_row(seed="2", selection="last", accuracy=""),
            make_row(seed="0", selection="oracle", accuracy="60"),
            make_row(seed="1", selection="oracle", accuracy="74"),
        ]
    )
    figures = [(row.rule, row.runs, row.accuracy, row.regret, row.is_oracle) for row in found]
    assert figures == [("last", 2, 60, 7, False), ("snd", 1, 64, 10, False), ("oracle", 2, 67, 0, True)]


def test_settings_are_those_of_each_row(make_row: MakeRow):
    row = make_row()
    other = make_row(seed="1", config=row["config"].replace('"steps": 4', '"steps": 5000'))
    found = settings_rows([row, make_row(selection="oracle"), other])
    assert [line[1:] for line in found] == [(1, 4, 8, "2", "2"), (1, 5000, 8, "2", "2")]
    assert [line.name for line in found] == ["tcm, steps 4", "tcm, steps 5000"]
