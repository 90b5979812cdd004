"""Whole suites in real processes. Killed, interrupted and partly failed suites end with the same rows."""

import csv
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.logs import logged_steps
from support.tiny_suite import ended, repeated, suite

from tcm.bench.config import SuiteConfig, method_settings
from tcm.bench.runner import run_suite
from tcm.classifier.selection import RULES
from tcm.cli.app import main
from tcm.cli.bench import run_benchmark
from tcm.errors import InputError
from tcm.training.files import lock
from tcm.training.run_folder import Run


def rows(out: Path) -> list[dict[str, str]]:
    """All rows of the store without their times, sorted."""
    with (out / "results.csv").open() as file:
        found = [{**row, "seconds": ""} for row in csv.DictReader(file)]
    return sorted(found, key=lambda row: (row["method"], row["selection"]))


def test_a_row_for_every_run_and_rule_and_tables_of_them(alone: Path):
    found = rows(alone)
    assert {(row["method"], row["selection"]) for row in found} == {
        (method, rule) for method in ("erm", "tcm") for rule in RULES
    }
    assert {row["k"] for row in found if row["method"] == "tcm"} == {"2"}
    assert all(row["benchmark"] == "digits" and row["commit"] and row["config_hash"] for row in found)
    assert "| erm" in (alone / "table.md").read_text()
    assert {file.suffix for file in alone.glob("table.*")} == {".md", ".tex", ".csv", ".html"}


def imageclef_da(root: Path, target: str = "p/0.jpg 0\np/1.jpg 1\n") -> SuiteConfig:
    """ImageCLEF-DA as it is distributed, with its labels in list files, but with only two classes."""
    (root / "list").mkdir(parents=True)
    for name in "ip":
        (root / name).mkdir()
        for label in range(2):
            Image.new("RGB", (32, 32)).save(root / name / f"{label}.jpg")
    (root / "list" / "iList.txt").write_text("i/0.jpg 0\ni/1.jpg 1\n")
    (root / "list" / "pList.txt").write_text(target)
    return SuiteConfig(root=root, tasks="I2P", methods="erm", seeds=1, steps=1, batch=2, size=32, crop=32)


@pytest.mark.filterwarnings("ignore:.*ImageCLEF-DA", "ignore:.*one image")
def test_the_rows_have_the_name_of_the_benchmark(tmp_path: Path):
    config, out = imageclef_da(tmp_path / "any"), tmp_path / "out"
    run_suite("imageclef-da", config, method_settings(small=True), out, quiet=True)
    found = {(row["benchmark"], row["task"], row["source"], row["target"]) for row in rows(out)}
    assert found == {("ImageCLEF-DA", "I>P", "i", "p")}


@pytest.mark.filterwarnings("ignore:.*ImageCLEF-DA", "ignore:.*one image")
def test_without_labels_of_the_target_there_are_rows_but_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config, out = imageclef_da(tmp_path / "any", target="p/0.jpg\np/1.jpg\n"), tmp_path / "out"
    assert run_benchmark("imageclef-da", config, method_settings(small=True), out, quiet=True) == 0
    assert "The targets have no labels" in capsys.readouterr().err
    assert {row["accuracy"] for row in rows(out)} == {""}
    assert not list(out.glob("table.*"))


def test_killed_three_times_it_ends_with_the_same_rows(alone: Path, tmp_path: Path):
    out, moments = tmp_path / "killed", random.Random(0)
    for _ in range(3):
        process = suite(out, "--log", "csv")
        time.sleep(moments.uniform(4, 10))
        process.send_signal(signal.SIGKILL)
        ended(process)
    code, _, errors = ended(suite(out, "--log", "csv"))
    assert (code, errors) == (0, "")
    assert rows(out) == rows(alone)
    for run in (*out.glob("runs/*/*"), *out.glob("mechanisms/*/*")):
        assert logged_steps(run) == [row["step"] for row in Run(run).metrics()]


def test_finished_runs_are_not_repeated(alone: Path):
    before = {file: file.stat().st_mtime_ns for file in alone.rglob("model.safetensors")}
    assert len(before) == 3
    assert repeated(alone)[0] == 0
    assert {file: file.stat().st_mtime_ns for file in alone.rglob("model.safetensors")} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_its_group_stops_the_suite_and_its_runs(tmp_path: Path, number: signal.Signals):
    out = tmp_path / "stopped"
    process = suite(out, "--steps", "100000")
    deadline = time.monotonic() + 120
    while not list(out.glob("runs/digits/erm-s0/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.2)
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), number)
    time.sleep(1)  # without the server that forked it, a run would have ended by now, unsaved
    process.send_signal(number)
    code, _, errors = ended(process)
    assert code == 128 + number
    assert errors.startswith("stopped with 0 of 3 runs finished")
    assert (out / "runs/digits/erm-s0/state.pt").exists()  # it was asked to save
    with lock(out / "runs/digits/erm-s0"):  # and its process is gone
        pass


def test_a_failed_run_is_reported_and_the_other_rows_stay(alone: Path):
    before, erm = rows(alone), alone / "runs/digits/erm-s0"
    (erm / "model.safetensors").unlink()
    (erm / "state.pt").write_bytes(b"nonsense")
    code, said, errors = repeated(alone)
    assert code == 1
    (line,) = errors.strip().splitlines()
    assert line.startswith("failed: runs/digits/erm-s0: ")
    assert "state.pt is damaged" in line
    assert "tcm" in said
    (erm / "state.pt").unlink()
    assert repeated(alone)[0] == 0
    assert rows(alone) == before


def test_a_suite_of_another_configuration_is_refused_and_nothing_is_lost(alone: Path):
    before = rows(alone)
    code, _, errors = repeated(alone, "--batch", "16")
    assert code == 2
    assert "holds a run with another configuration (batch: 8 -> 16)" in errors
    assert rows(alone) == before


def test_two_suites_do_not_write_one_folder(alone: Path):
    with lock(alone):
        code, _, errors = ended(suite(alone))
    assert code == 2
    assert "is in use by another process" in errors


def test_a_store_of_another_version_is_refused(alone: Path):
    store = alone / "results.csv"
    text = store.read_text()
    store.write_text(text.replace("\n2,", "\n1,"))
    code, _, errors = repeated(alone)
    assert code == 2
    assert "results.csv is a store of version 1" in errors
    assert store.read_text() == text.replace("\n2,", "\n1,")
    store.write_text(text)


def test_a_wrong_store_is_found_before_the_work(tmp_path: Path):
    (tmp_path / "results.csv").write_text("no,such,columns\n1,2,3\n")
    code, _, errors = repeated(tmp_path)
    assert code == 2
    assert errors.count("\n") == 1
    assert "columns that differ" in errors
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_refused_at_once(tmp_path: Path):
    with pytest.raises(InputError, match="no GPU is available here"):
        run_suite("digits", SuiteConfig(device="cuda"), method_settings(small=True), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_its_folder_stands_for_its_rows_and_runs(alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["table", str(alone)]) == 0
    shown = capsys.readouterr().out
    assert main(["table", str(alone / "results.csv")]) == 0
    assert capsys.readouterr().out == shown
    assert main(["figure", "accuracy", str(alone), "--out", str(tmp_path / "accuracy.png"), "-q"]) == 0
    assert main(["figure", "k", str(alone), "--out", str(tmp_path / "k.png"), "-q"]) == 2
    assert "every run has k = 2" in capsys.readouterr().err  # it found the runs of tcm
    assert main(["figure", "activation", str(alone), "--images", "1", "--out", str(tmp_path / "a.png"), "-q"]) == 0
    assert main(["table", str(tmp_path)]) == 2
    assert "has no results.csv; name the folder of a suite" in capsys.readouterr().err
