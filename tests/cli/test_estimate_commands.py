from collections.abc import Callable
from pathlib import Path

import pytest

from tcm.cli.app import main
from tcm.estimation.audit import draw_sample, read_audit, sample_csv
from tcm.estimation.estimate import read_estimate

MakeRun = Callable[..., Path]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # no cell is broken over lines


def test_estimate_prints_every_run_and_estimator(make_run: MakeRun, capsys: pytest.CaptureFixture[str]):
    runs = [make_run("one", held_out=0.2), make_run("two", seed=1, held_out=0.2), make_run("other", images=300)]
    assert main(["estimate", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    for run in runs:
        found = read_estimate(run)
        assert found
        (line,) = (line for line in out.splitlines() if str(run) in line)
        assert f"{100 * found.accuracy:.0f} %" in line
        assert f"{100 * found.error:.1f} points on {found.cases}" in line
    with_repetition = read_estimate(runs[0])
    assert with_repetition
    assert "agreement" in with_repetition.estimators  # with the run that differs in the seed
    assert "(Garg et al., 2022)" in out


def test_quiet_is_one_table(make_run: MakeRun, capsys: pytest.CaptureFixture[str]):
    assert main(["estimate", str(make_run("one")), "-q"]) == 0
    out = capsys.readouterr().out
    assert "estimated target accuracy" in out
    assert "single estimators" not in out


def test_names_with_brackets_are_printed_whole(make_run: MakeRun, capsys: pytest.CaptureFixture[str]):
    runs = [str(make_run(name, held_out=0.2)) for name in ("[red]one", "[bold]two")]
    for command in ("estimate", "compare"):
        assert main([command, *runs]) == 0
        out = capsys.readouterr().out
        assert "[red]one" in out
        assert "[bold]two" in out


def test_an_audit_by_csv(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run, file = make_run("one"), tmp_path / "labels.csv"
    assert main(["audit", str(run), "--n", "20", "--seed", "3", "--csv", str(file)]) == 0
    assert f"--labels {file}" in capsys.readouterr().out
    sample = draw_sample(run, 20, 3)
    assert file.read_text() == sample_csv(sample)
    file.write_text(sample_csv(sample, dict.fromkeys(sample.paths, "3")))
    assert main(["audit", str(run), "--labels", str(file)]) == 0
    found = read_audit(run)
    assert found
    assert capsys.readouterr().out == f"{found.sentence}\n"
    assert found.labelled == 20


def test_compare_prints_the_ranking_and_its_reliability(make_run: MakeRun, capsys: pytest.CaptureFixture[str]):
    runs = [make_run("bad", skill=0.5), make_run("good", skill=5), make_run("erm", method="erm", skill=3)]
    assert main(["compare", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    ranked = [line for line in out.splitlines() if line.startswith("│ 1 ")]
    assert "good" in ranked[0]
    assert "regret" in out
    assert "warning: 3, bad: negative transfer" in out
    assert "classes whose shares differ most" in out
