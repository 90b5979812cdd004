"""What methods cost and reach, from rows of results."""

import json
from pathlib import Path

import pytest

from tcm.analysis.tradeoff import tradeoff
from tcm.cli.app import main
from tcm.errors import InputError
from tcm.results.store import COLUMNS, VERSION, add_rows


def row(method: str, seed: int = 0, steps: int = 100, **changes: str) -> dict[str, str]:
    config = json.dumps({"seed": seed, "steps": steps, "data": {}})
    found = {**dict.fromkeys(COLUMNS, ""), "version": VERSION, "config": config, "benchmark": "Office-Home"}
    found |= {"task": "A>C", "method": method, "seed": str(seed), "accuracy": "50", "seconds": "120"}
    return {**found, "selection": "last", "device": "H200", "config_hash": f"{steps}", **changes}


def test_means_over_seeds():
    rows = [row("dann", 0, accuracy="40", memory="7"), row("dann", 1, accuracy="50", seconds="60", memory="9")]
    found = tradeoff([*rows, row("erm")])
    assert (found.benchmark, found.task, found.device) == ("Office-Home", "A>C", "H200")
    dann, erm = found.efforts
    assert (dann.label, dann.accuracy.mean, dann.minutes, dann.memory) == ("dann", 45, 1.5, 8)
    assert dann.accuracy.deviation == pytest.approx(50**0.5)
    assert (erm.label, erm.accuracy.mean, erm.minutes, erm.memory) == ("erm", 50, 2, None)


def test_runs_of_another_length_are_other_points():
    found = tradeoff([row("dann"), row("dann", steps=1000), row("erm", steps=1000)])
    assert [one.label for one in found.efforts] == ["dann, 100 steps", "dann, 1,000 steps", "erm"]


def test_only_the_usual_number_of_mechanisms_is_shown():
    rows = [row("tcm", k="1"), row("tcm", k="4"), row("tcm-paper", k="4"), row("baseline", k="1"), row("erm")]
    rows.append(row("tcm-release", k="4"))
    assert [one.label for one in tradeoff(rows).efforts] == ["tcm", "tcm-paper", "baseline", "erm", "tcm-release"]


def test_one_task_and_one_device():
    rows = [row("erm", task="R>C"), row("erm"), row("dann"), row("dann", 1, device="A100"), row("mdd", seconds="")]
    assert [one.label for one in tradeoff(rows).efforts] == ["erm", "dann"]
    assert [one.label for one in tradeoff(rows, task="R2C").efforts] == ["erm"]
    assert tradeoff(rows, "office-home", "a>c").task == "A>C"


def test_what_is_not_there_is_named():
    with pytest.raises(InputError, match="`task` is P2C, but the results are on A>C, R>C; choose one"):
        tradeoff([row("erm"), row("dann"), row("erm", task="R>C")], task="P2C")
    with pytest.raises(InputError, match="`benchmark` is digits, but the results are on Office-Home"):
        tradeoff([row("erm")], "digits")
    with pytest.raises(InputError, match="`selection` is oracle"):
        tradeoff([row("erm")], selection="oracle")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    add_rows(tmp_path / "rows.csv", [row("erm"), row("dann")])
    assert main(["figure", "tradeoff", f"{tmp_path}/rows.csv", "--out", f"{tmp_path}/figure.svg"]) == 0
    assert "<svg" in (tmp_path / "figure.svg").read_text()
    for words, says in (([], "no results to draw"), ([f"{tmp_path}/gone.csv"], "gone.csv cannot be read")):
        capsys.readouterr()
        assert main(["figure", "tradeoff", *words]) == 2
        assert says in capsys.readouterr().err
