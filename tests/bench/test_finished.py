"""Which runs of a suite's folder are shown together."""

from pathlib import Path

from tcm.bench.config import SuiteConfig, SuiteMechanisms
from tcm.bench.finished import compared_pair, finished_runs, in_order, mechanisms_of, usual_k, without_ablation


def finish(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "model.safetensors").touch()


def test_finished_runs_are_read_in_the_order_of_tables(tmp_path: Path):
    finish(tmp_path / "runs/C2A", "erm-s0")
    finish(tmp_path / "runs/A2C", "tcm-k10-s0", "tcm-k4-s10", "tcm-k4-s2", "tcm-control-k4-s0", "cdan-e-s0", "erm-s1")
    finish(tmp_path / "runs/A2C", "notes", "mine-s0")
    (tmp_path / "runs/A2C/dann-s0").mkdir()  # not finished
    found = finished_runs("office-home", tmp_path)
    names = ["erm-s1", "cdan-e-s0", "tcm-k4-s2", "tcm-k4-s10", "tcm-k10-s0", "tcm-control-k4-s0", "erm-s0"]
    assert [run.folder.name for run in found] == names
    assert [run.task for run in found] == ["A2C"] * 6 + ["C2A"]
    assert found[3][2:] == ("tcm", 4, 10)
    assert found[1][2:] == ("cdan-e", None, 0)
    assert [run.k for run in without_ablation(found, 4)] == [None, None, 4, 4, 4, None]
    assert finished_runs("digits", tmp_path) == []


def test_tcm_of_the_usual_k_is_compared_with_the_first_rival(tmp_path: Path):
    folder = tmp_path / "runs/digits"
    finish(folder, "tcm-k2-s0", "tcm-k4-s1", "tcm-k4-s2", "mdd-s0")

    def pair() -> list[str] | None:
        found = compared_pair(finished_runs("digits", tmp_path), 4)
        return [run.folder.name for run in found] if found else None

    assert pair() == ["mdd-s0", "tcm-k4-s1"]
    finish(folder, "erm-s2", "erm-s1")
    assert pair() == ["erm-s1", "tcm-k4-s1"]
    finish(folder, "dann-s0", "baseline-k1-s0")
    assert pair() == ["baseline-k1-s0", "tcm-k4-s1"]
    assert compared_pair(finished_runs("digits", tmp_path), 3) is None


def test_mechanisms_of_the_pair(tmp_path: Path):
    assert mechanisms_of("office-home", tmp_path, "C2A", 4) is None
    finish(tmp_path / "mechanisms/A-C", "paper-k1", "paper-k10")
    assert mechanisms_of("office-home", tmp_path, "C2A", 4) == tmp_path / "mechanisms/A-C/paper-k10"
    finish(tmp_path / "mechanisms/A-C", "paper-k4")
    assert mechanisms_of("office-home", tmp_path, "C2A", 4) == tmp_path / "mechanisms/A-C/paper-k4"


def test_the_usual_k_is_that_of_the_protocol_or_the_option():
    assert usual_k("digits", SuiteConfig()) == 4
    assert usual_k("imageclef-da", SuiteConfig()) == 5
    assert usual_k("digits", SuiteConfig(mechanisms=SuiteMechanisms(k=3))) == 3


def test_rows_stand_in_the_order_of_the_suite():
    columns = ("method", "k", "seed")
    rows = [("tcm-paper", "4", "0"), ("tcm", "10", "0"), ("tcm", "4", "1")]
    rows += [("tcm", "4", "0"), ("own", "", "0"), ("erm", "", "0")]
    found = in_order([dict(zip(columns, row, strict=True)) for row in rows])
    assert [tuple(row.values()) for row in found] == [rows[5], rows[3], rows[2], rows[1], rows[0], rows[4]]
