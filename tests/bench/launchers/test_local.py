"""Six runs in local processes: what the clusters are compared with."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from support.six_runs import RUNS, SixRuns

from tcm.bench.config import SuiteConfig
from tcm.bench.launchers.launcher import Work
from tcm.bench.launchers.local import LocalLauncher, gpus_of
from tcm.bench.runner import local_launcher
from tcm.errors import InputError


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
        (["--devices", "0"], "--devices is 0; give 1 or more"),
        (["--devices", "9"], "--batch is 8, but the run has 9 processes"),
        (["--devices", "2", "--compile", "on"], "--compile is on, but the run has 2 processes"),
        (["--devices", "2", "--plan"], "--devices is 2, but --plan counts hours of one device"),
        (["--devices", "2", "--launcher", "ray", "--ray.gpus", "0.5"], "--ray.gpus is 0.5, but each process of --devi"),
        (["--devices", "2", "--launcher", "slurm", "--slurm.gpus", "1"], "--slurm.gpus is 1, but each process of --d"),
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


def tell_gpus() -> None:
    print(os.environ["CUDA_VISIBLE_DEVICES"])


def test_jobs_at_once_have_gpus_of_their_own(tmp_path: Path):
    works = [Work(name, tell_gpus, tmp_path / f"{name}.log", bool) for name in "abc"]
    launcher = LocalLauncher(at_once=2, gpus=["4", "5", "6", "7"], devices=2)
    launcher.submit(works)
    while any(state.status in ("waiting", "running") for state in launcher.states().values()):
        pass
    launcher.close()
    seen = [work.log.read_text().splitlines()[-1] for work in works]
    assert set(seen[:2]) == {"4,5", "6,7"}
    assert seen[2] in seen[:2]
    assert [gpus_of(place, 1, ["0", "1"]) for place in range(3)] == ["0", "1", "0"]  # shared: there are too few
    assert gpus_of(1, 2, []) == ""


def test_more_jobs_times_devices_than_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    usual, two = SuiteConfig(), SuiteConfig(devices=2)
    assert local_launcher(two, None).free == ["0,1"]
    assert local_launcher(usual, 4).free == ["0", "1", "2", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3,6")
    assert local_launcher(two, 1).free == ["5,3"]
    with pytest.raises(InputError, match="`jobs` is 2, and with `devices=2` these need 4 GPUs, but there are 3 here"):
        local_launcher(two, 2)
    with pytest.raises(InputError, match="`devices` is 4, but the number of GPUs here is 3"):
        local_launcher(SuiteConfig(devices=4), None)


def test_a_run_of_two_processes_is_stopped_and_continued_and_finds_what_one_does(
    reference: SixRuns, tmp_path: Path, meanwhile: Callable[[Callable[[], None]], None]
):
    six, options = SixRuns(tmp_path / "suite"), ("--methods", "erm", "--devices", "2")

    def stop() -> None:
        six.process_in_the_middle()
        os.kill(os.getpid(), signal.SIGINT)

    meanwhile(stop)
    code, _, complained = six.run(*options)
    assert (code, complained.count("\n")) == (128 + signal.SIGINT, 1)
    assert "stopped with 0 of 1 runs finished" in complained
    log = six.out / "logs/runs-digits-erm-s0.log"
    assert log.read_text().splitlines()[-1].startswith("stopped at step")

    code, _, complained = six.run(*options)
    assert (code, complained) == (0, "")
    found, expected = (folder / "runs/digits/erm-s0" for folder in (six.out, reference.out))
    about = json.loads((found / "environment.json").read_text())
    assert (about["processes"], about["threads"]) == (2, 1)
    weights, others = (safetensors.torch.load_file(run / "model.safetensors") for run in (found, expected))
    assert max(float((weights[name] - others[name]).abs().max()) for name in others) < 1e-4
