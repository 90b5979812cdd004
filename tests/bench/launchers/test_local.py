"""Six runs in local processes: what the clusters are compared with."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.six_runs import RUNS, SixRuns

from tcm.bench.launchers.launcher import Work
from tcm.bench.launchers.local import LocalLauncher


def test_six_runs_two_at_once(reference: SixRuns):
    assert len([name for name in reference.models() if name.endswith("model.safetensors")]) == RUNS
    code, said, _ = reference.run("--status")
    assert code == 0
    assert f"{RUNS} of {RUNS} done" in said


def test_the_status_of_a_suite_that_was_never_started(tmp_path: Path):
    six = SixRuns(tmp_path / "suite")
    code, said, _ = six.run("--status")
    assert code == 0
    assert f"0 of {RUNS} done, {RUNS} waiting" in said
    assert not six.out.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--address", "127.0.0.1:1"], "--address is not used with --launcher local; leave it out"),
        (["--slurm.gpus", "1"], "--slurm is not used with --launcher local"),
        (["--launcher", "ray", "--jobs", "2"], "--jobs is not used with --launcher ray"),
        (["--launcher", "ray", "--slurm.cpus", "2"], "--slurm is not used with --launcher ray"),
        (["--launcher", "slurm", "--ray.gpus", "0.5"], "--ray is not used with --launcher slurm"),
        (["--launcher", "ray", "--ray.gpus", "-1"], "--ray.gpus is -1"),
        (["--launcher", "slurm", "--slurm.minutes", "0"], "--slurm.minutes is 0; give 1 or more"),
    ],
)
def test_settings_of_another_launcher_and_wrong_ones(options: list[str], said: str, tmp_path: Path):
    code, _, complained = SixRuns(tmp_path / "suite").run(*options)
    assert (code, complained.count("\n")) == (2, 1)
    assert said in complained
    assert not (tmp_path / "suite").exists()


def fail() -> None:
    raise RuntimeError("a mistake\nin two lines")


def succeed() -> None:
    print("fine")


def test_the_job_of_a_failed_one_fails_and_the_others_continue(tmp_path: Path):
    def work(name: str, call: Callable[[], None], after: str = "") -> Work:
        return Work(name, call, tmp_path / f"{name}.log", bool, after)

    launcher = LocalLauncher(at_once=1)
    works = [work("a", fail), work("b", succeed, after="a"), work("c", succeed)]
    launcher.submit(works)
    states = launcher.states()
    while any(state.status in ("waiting", "running") for state in states.values()):
        states = launcher.states()
    launcher.close()
    assert {name: state.status for name, state in states.items()} == {"a": "failed", "b": "failed", "c": "done"}
    assert "in two lines" in states["a"].reason
    assert states["b"].reason == "a failed"
