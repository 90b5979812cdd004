"""The cost of a suite before it starts."""

import json
import signal
from pathlib import Path

import pytest
from support.tiny_suite import said_by

from tcm.bench import rates
from tcm.bench.config import SuiteConfig, method_settings
from tcm.bench.forecast import forecast
from tcm.bench.plan import Job, plan_jobs
from tcm.bench.rates import Rate, kind_of, rates_of_rows
from tcm.config import to_json
from tcm.data.task import Task
from tcm.errors import Interrupted

ROWS = Path(__file__).parents[2] / "benchmarks" / "results"


def planned(out: Path, **options: object) -> list[Job]:
    return plan_jobs("digits", SuiteConfig(ks="", **options), method_settings(small=True), out)  # pyright: ignore[reportArgumentType]


def row(job: Job, seconds: float, device: str = "H200", **changed: object) -> dict[str, str]:
    config = {**to_json(job.config.resolved()), **changed}
    steps = str(config["steps"])
    found = {"method": job.method, "seconds": str(seconds), "steps": steps, "device": device, "selection": "last"}
    return {**found, "config": json.dumps(config)}


def test_the_rate_of_a_method_is_that_of_all_rows_of_its_settings(tmp_path: Path):
    erm, dann = planned(tmp_path, methods="erm,dann", seeds=1, steps=100)
    rows = [row(erm, 1.0), row(erm, 5.0, steps=200), row(erm, 99.0, batch=7), row(erm, 90.0, device="laptop", steps=9)]
    rows += [{**row(dann, 50.0), "selection": "oracle"}]
    assert rates_of_rows([erm, dann], rows) == {"erm": Rate(6 / 300, "H200", "rows: 2")}


def test_hours_disk_and_the_longest_chain(tmp_path: Path, digits: Task):
    jobs = planned(tmp_path, methods="erm,baseline", seeds=3, steps=100)
    names = {kind_of(job) for job in jobs}
    assert names == {"erm", "baseline", "stage 1, k = 1"}
    known = {"erm": Rate(1.0, "x", ""), "baseline": Rate(2.0, "x", ""), "stage 1, k = 1": Rate(3.0, "x", "", 0.5)}
    found = forecast("digits", jobs, tmp_path, known)
    images = sum(map(len, digits))
    stage_1 = 3.0 * 200 + 0.5 * images
    assert found.seconds == 3 * 100 * (1.0 + 2.0) + stage_1
    assert found.longest == stage_1 + 200
    assert (found.seconds_on(1), found.seconds_on(1000)) == (found.seconds, found.longest)
    assert found.disk.images == found.disk.counterfactuals == images * 3 * 32**2  # k = 1
    assert found.disk.models > 7 * 4 * 100_000


def test_finished_runs_cost_nothing_more(alone: Path):
    jobs = plan_jobs("digits", SuiteConfig(methods="erm", seeds=2, steps=4), method_settings(small=True), alone)
    (cost,) = forecast("digits", jobs, alone, {"erm": Rate(2.0, "x", "")}).kinds
    assert (cost.runs, cost.finished, cost.steps, cost.seconds) == (2, 1, 4, 8.0)


def test_the_command_takes_rows_and_writes_nothing(tmp_path: Path):
    words = ["bench", "digits", "--methods", "erm,dann", "--seeds", "2", "--plan", "--out", str(tmp_path / "suite")]
    code, said, complained = said_by([*words, "--rates", str(ROWS / "digits-suite.csv")])
    assert (code, complained) == (0, "")
    assert "4 runs, 0 of them finished" in said
    assert "rows: 3" in said
    assert "on 64" in said
    assert "GB of counterfactuals" in said
    assert not (tmp_path / "suite").exists()


def test_an_interrupted_probe_does_not_name_the_folder_that_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def stopped(*_: object) -> Rate:
        raise Interrupted("stopped at step 3 of 20, saved in somewhere; repeat the command to continue", signal.SIGTERM)

    monkeypatch.setattr(rates, "probe", stopped)
    jobs = planned(tmp_path, methods="erm,dann", seeds=1, steps=100)
    with pytest.raises(Interrupted, match="0 of 2 kinds of runs; nothing was kept") as stop:
        rates.probed_rates(jobs, ["erm", "dann"], quiet=True)
    assert stop.value.signal_number == signal.SIGTERM


def test_without_rows_a_probe_measures_both_stages(tmp_path: Path):
    words = ["bench", "digits", "--methods", "baseline", "--seeds", "1", "--batch", "2", "--mechanisms.batch", "1"]
    words += ["--device", "cpu", "--plan", "-q", "--out", str(tmp_path / "suite")]
    code, said, complained = said_by(words)
    assert (code, complained) == (0, "")
    assert said.count("probe: 20 steps") == 2
    assert not (tmp_path / "suite").exists()
