"""Six runs on a real Slurm of two machines: cancelled and queued again, left and looked at, and waited for."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.clusters import slurm_cluster
from support.six_runs import RUNS, SixRuns


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")):
        yield


def job_of(six: SixRuns, run: str) -> str:
    return json.loads((six.out / "slurm" / "jobs.json").read_text())[f"runs/digits/{run}"]


@pytest.mark.usefixtures("cluster")
def test_a_partition_that_does_not_exist(tmp_path: Path):
    code, _, complained = SixRuns(tmp_path / "suite").run("--launcher", "slurm", "--slurm.partition", "large")
    assert (code, complained.count("\n")) == (2, 1)
    assert '--slurm.partition is "large"; the cluster has small' in complained


@pytest.mark.usefixtures("cluster")
def test_what_slurm_refuses_is_one_line(tmp_path: Path):
    code, _, complained = SixRuns(tmp_path / "suite").run("--launcher", "slurm", "--slurm.gpus", "4")
    assert (code, complained.count("\n")) == (2, 1)
    assert "Slurm refused the jobs" in complained
    assert not list((tmp_path / "suite").glob("runs"))


@pytest.mark.usefixtures("cluster")
def test_a_folder_that_the_machines_do_not_see_is_found_before_the_first_run(tmp_path: Path):
    here = os.open(tmp_path, os.O_RDONLY)
    try:  # other processes have no such path
        code, _, complained = SixRuns(Path(f"/proc/self/fd/{here}/suite")).run("--launcher", "slurm")
    finally:
        os.close(here)
    assert (code, complained.count("\n")) == (2, 1)
    assert "is not shared with" in complained
    assert not list((tmp_path / "suite").glob("slurm"))


@pytest.mark.usefixtures("cluster")
def test_runs_are_queued_again_and_the_suite_is_left_and_nothing_differs(
    reference: SixRuns, tmp_path: Path, meanwhile: Callable[[Callable[[], None]], None]
):
    six, queued_again = SixRuns(tmp_path / "suite"), []

    def disturb() -> None:
        first, process = six.process_in_the_middle()
        subprocess.run(["scontrol", "requeue", job_of(six, first)], check=True, timeout=20)
        second, process = six.process_in_the_middle(process)
        os.kill(process, signal.SIGUSR2)  # as Slurm does before the time limit
        queued_again.extend([first, second])
        os.kill(os.getpid(), signal.SIGINT)

    meanwhile(disturb)
    code, _, complained = six.run("--launcher", "slurm", "--slurm.partition", "small")
    assert code == 128 + signal.SIGINT
    assert f"of {RUNS} runs finished" in complained
    assert "continue in Slurm" in complained
    assert "--status" in complained
    ids = (six.out / "slurm" / "jobs.json").read_text()
    assert len({number.split("_")[0] for number in json.loads(ids).values()}) == 2  # arrays: one, and one after it

    code, said, _ = six.run("--status")
    assert code == 0
    assert "Slurm job" in said
    assert f"{RUNS} of {RUNS} done" not in said

    code, _, complained = six.run("--launcher", "slurm", "--slurm.partition", "small")  # waits for the same jobs
    assert (code, complained) == (0, "")
    assert (six.out / "slurm" / "jobs.json").read_text() == ids
    assert (six.rows(), six.models()) == (reference.rows(), reference.models())
    assert len(set(queued_again)) == 2
    for name in queued_again:
        log = (six.out / "logs" / f"runs-digits-{name}.log").read_text()
        assert log.count("started on ") == 2
        assert "stopped" in log  # asked by a signal, it saved and ended by itself


@pytest.mark.usefixtures("cluster")
def test_a_failed_run_of_stage_1_is_reported_and_so_are_those_that_need_it(tmp_path: Path):
    six = SixRuns(tmp_path / "suite")
    folder = six.out / "mechanisms/digits/paper-k1"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("precious")
    code, _, complained = six.run("--launcher", "slurm", "--methods", "baseline")
    assert code == 1
    first, second = complained.strip().split("\n")
    assert first.startswith("failed: mechanisms/digits/paper-k1: ")
    assert "is not empty" in first
    assert second == "failed: runs/digits/baseline-k1-s0: mechanisms/digits/paper-k1 failed"


def test_without_submitit_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    code, _, complained = SixRuns(tmp_path / "suite").run("--launcher", "slurm")
    assert (code, complained.count("\n")) == (2, 1)
    assert "pip install 'tcm[slurm]'" in complained


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, complained = SixRuns(tmp_path / "suite").run("--launcher", "slurm")
    assert (code, complained.count("\n")) == (2, 1)
    assert "no command sbatch" in complained


@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = Path(os.environ["SLURM_CONF"]).read_text()
    (tmp_path / "slurm.conf").write_text(text.replace("SlurmctldPort=", "MessageTimeout=2\nSlurmctldPort=1"))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    code, _, complained = SixRuns(tmp_path / "suite").run("--launcher", "slurm")
    assert (code, complained.count("\n")) == (2, 1)
    assert "check that the Slurm cluster is up" in complained
