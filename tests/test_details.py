"""The scripts that read finished runs: benchmarks/details.py and benchmarks/agreement.py."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tcm.training.run_folder import Run

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NO_DATA = dict.fromkeys(f"{side}{form}" for side in ("source", "target") for form in ("", "_dir", "_list"))


def write_run(folder: Path, accuracies: list[float], **data: str) -> Path:
    Run(folder).start({"seed": 0, "data": {**NO_DATA, "benchmark": None, **data}})
    (folder / "environment.json").write_text(json.dumps({"torch": "2", "commit": "c"}))
    # Without target labels there is no accuracy.
    rows: list[dict[str, Any]] = [{"step": step, "select/snd": step / 10} for step in (1, 2)]
    rows = [row | ({"target/accuracy": found} if found else {}) for row, found in zip(rows, accuracies, strict=True)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def run_script(monkeypatch: pytest.MonkeyPatch, name: str, *words: object) -> None:
    monkeypatch.setattr("sys.argv", [name, *map(str, words)])
    monkeypatch.syspath_prepend(BENCHMARKS)  # as Python does with the folder of a script
    runpy.run_path(str(BENCHMARKS / name), run_name="__main__")


def test_runs_are_told_by_their_domains_and_judged_where_there_are_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    own = write_run(tmp_path / "own", [0.2, 0.4], source_dir="/data/photos", target_dir="/data/cliparts")
    bare = write_run(tmp_path / "bare", [0, 0], source_list="/data/a.txt", target_list="/data/b.txt")
    built_in = write_run(tmp_path / "built-in", [0.5, 0.5], benchmark="digits")
    store = tmp_path / "details.csv"
    run_script(monkeypatch, "details.py", own, bare, built_in, "--to", store)
    text = store.read_text()
    for name in ("photos to cliparts, own", "a to b, bare", "digits source to digits target, built-in"):
        assert f'"{name}",0,1,' in text
    run_script(monkeypatch, "agreement.py", store)
    said = capsys.readouterr().out
    assert "photos to cliparts, 2 evaluations" in said
    assert "a to b" not in said
    assert "nan" not in said


def test_lines_of_other_runs_stay_and_those_of_the_same_run_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = tmp_path / "details.csv"
    first = write_run(tmp_path / "first", [0.2, 0.4], source="A", target="B")
    second = write_run(tmp_path / "second", [0.5, 0.6], source="A", target="B")
    run_script(monkeypatch, "details.py", first, "--to", store)
    before = store.read_text()
    run_script(monkeypatch, "details.py", second, "--to", store)
    assert store.read_text().startswith(before)
    assert '"A to B, second",0,2,target/accuracy,0.6' in store.read_text()
    metrics = first / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("0.4", "0.7"))
    run_script(monkeypatch, "details.py", first, "--to", store)
    lines = [line for line in store.read_text().splitlines() if "first" in line]
    assert len(lines) == 4
    assert lines[-1].startswith('"A to B, first",0,2,target/accuracy,0.7')


def test_a_folder_without_a_run_is_one_line_and_leaves_the_csv_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = tmp_path / "details.csv"
    store.write_text("as it was")
    for script in ("details.py", "collect.py"):
        with pytest.raises(SystemExit, match=r"error: .*gone is not a run folder"):
            run_script(monkeypatch, script, tmp_path / "gone", "--to", store)
    assert store.read_text() == "as it was"


def test_a_csv_of_something_else_is_one_line_and_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, run = tmp_path / "other.csv", write_run(tmp_path / "run", [0.2, 0.4], source="A", target="B")
    store.write_text("no,such,columns\n1,2,3\n")
    for script, words in (("details.py", (run, "--to", store)), ("agreement.py", (store,))):
        with pytest.raises(SystemExit, match=r"error: .*other.csv is not such a table .*columns that differ"):
            run_script(monkeypatch, script, *words)
    assert store.read_text() == "no,such,columns\n1,2,3\n"
    with pytest.raises(SystemExit, match=r"error: .*gone.csv cannot be read"):
        run_script(monkeypatch, "agreement.py", tmp_path / "gone.csv")
