"""Which runs of a suite are found, and which are compared."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from tcm.bench.config import SuiteConfig
from tcm.bench.finished import (
    SuiteRun,
    compared_runs,
    finished_runs,
    in_order,
    mechanisms_of,
    usual_k,
    without_ablation,
)
from tcm.training.run_folder import Run

SHORT = {"A": "Art", "C": "Clipart", "d": "digits source"}


def finish(out: Path, task: str, method: str, seed: int, k: int | None = None) -> Path:
    """Writes a finished run of stage 2. Its folder has a name that says nothing about it."""
    folder = out / "runs" / task / f"run-{len([*out.glob('runs/*/*')])}"
    where = f"/elsewhere/mechanisms/{'A-C' if task != 'digits' else task}/paper-k{k}" if k else None
    config = {"method_name": method, "seed": seed, "mechanisms": where}
    source, target = (SHORT[task[0]], SHORT[task[-1]]) if task != "digits" else ("digits source", "digits target")
    run = Run(folder)
    run.start(config)
    run.release()
    (folder / "evaluation.json").write_text(json.dumps({"source": {"name": source}, "target": {"name": target}}))
    run.save_model({"x": torch.zeros(1)}, {"k": k} if k else {})
    return folder


def names(runs: Sequence[SuiteRun]) -> list[str]:
    return [f"{run.task} {run.method} {run.k or '-'} {run.seed}" for run in runs]


def test_finished_runs_are_read_from_their_configs_in_the_order_of_the_tables(tmp_path: Path):
    finish(tmp_path, "C2A", "erm", 0)
    for method, seed, k in (("tcm", 0, 10), ("tcm", 10, 4), ("tcm", 2, 4), ("tcm-paper", 0, 4), ("cdan-e", 0, None)):
        finish(tmp_path, "A2C", method, seed, k)
    (finish(tmp_path, "A2C", "dann", 0) / "model.safetensors").unlink()  # not finished
    (tmp_path / "runs/A2C/notes").mkdir()
    found = finished_runs("office-home", tmp_path)
    expected = ["A2C cdan-e - 0", "A2C tcm 4 2", "A2C tcm 4 10", "A2C tcm 10 0", "A2C tcm-paper 4 0", "C2A erm - 0"]
    assert names(found) == expected
    assert names(without_ablation(found, 4)) == [name for name in expected if name != "A2C tcm 10 0"]
    assert finished_runs("digits", tmp_path / "elsewhere") == []


def test_tcm_of_the_usual_k_is_compared_with_the_first_rival(tmp_path: Path):
    for method, seed, k in (("tcm", 0, 2), ("tcm", 1, 4), ("tcm", 2, 4), ("mdd", 0, None)):
        finish(tmp_path, "digits", method, seed, k)

    def pair() -> list[str] | None:
        return names(compared_runs(finished_runs("digits", tmp_path), 4)) or None

    assert pair() == ["digits mdd - 0", "digits tcm 4 1"]
    for seed in (2, 1):
        finish(tmp_path, "digits", "erm", seed)
    assert pair() == ["digits erm - 1", "digits tcm 4 1"]
    finish(tmp_path, "digits", "dann", 0)
    finish(tmp_path, "digits", "baseline", 0, 1)
    assert pair() == ["digits baseline 1 0", "digits tcm 4 1"]
    finish(tmp_path, "digits", "gvb", 0)
    assert pair() == ["digits gvb - 0", "digits tcm 4 1"]
    three = compared_runs(finished_runs("digits", tmp_path), 4, rivals=2)
    assert names(three) == ["digits gvb - 0", "digits baseline 1 0", "digits tcm 4 1"]
    assert compared_runs(finished_runs("digits", tmp_path), 3) == []


def test_mechanisms_are_those_that_the_runs_of_a_task_used(tmp_path: Path):
    def mechanisms() -> Path | None:
        return mechanisms_of(finished_runs("office-home", tmp_path), "C2A", 4)

    def finish_stage_1(k: int) -> None:
        folder = tmp_path / f"mechanisms/A-C/paper-k{k}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").touch()

    finish(tmp_path, "C2A", "baseline", 0, 1)
    finish(tmp_path, "C2A", "tcm", 0, 10)
    assert mechanisms() is None
    finish_stage_1(1)
    finish_stage_1(10)
    assert mechanisms() == tmp_path / "mechanisms/A-C/paper-k10"
    finish(tmp_path, "C2A", "tcm", 0, 4)
    finish_stage_1(4)
    assert mechanisms() == tmp_path / "mechanisms/A-C/paper-k4"


def test_the_usual_k_is_that_of_the_protocol_or_the_option():
    assert usual_k("digits", SuiteConfig()) == 4
    assert usual_k("imageclef-da", SuiteConfig()) == 5
    assert usual_k("digits", SuiteConfig(k=3)) == 3


def test_rows_are_in_the_order_of_the_suite():
    columns = ("method", "k", "seed")
    rows = [("tcm-paper", "4", "0"), ("tcm", "10", "0"), ("tcm", "4", "1"), ("tcm", "4", "0")]
    rows += [("own", "", "0"), ("erm", "", "0")]
    found = in_order([dict(zip(columns, row, strict=True)) for row in rows])
    assert [tuple(row.values()) for row in found] == [rows[5], rows[3], rows[2], rows[1], rows[0], rows[4]]
