"""Six runs on a real Ray cluster of two machines, of which a process and then a machine are killed."""

import importlib.util
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clusters import ray_cluster, until
from support.programs import children_of
from support.six_runs import SixRuns

from tcm.bench.launchers import ray_cluster as module

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster() as started:
        yield started


def parent_of(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except FileNotFoundError:
        return None


def test_a_folder_that_the_machines_do_not_see_is_found_before_the_first_run(cluster: Any, tmp_path: Path):
    here = os.open(tmp_path, os.O_RDONLY)
    try:  # other processes have no such path
        code, _, complained = SixRuns(Path(f"/proc/self/fd/{here}/suite")).run(
            "--launcher", "ray", "--address", cluster.address
        )
    finally:
        os.close(here)
    assert (code, complained.count("\n")) == (2, 1)
    assert "is not shared with 127.0.0.1" in complained
    assert not (tmp_path / "suite" / "runs").exists()


def test_runs_that_need_more_than_any_machine_has(cluster: Any, tmp_path: Path):
    six = SixRuns(tmp_path / "suite")
    for option, count in (("--ray.gpus", "0.5"), ("--ray.cpus", "64")):
        code, _, complained = six.run("--launcher", "ray", "--address", cluster.address, option, count)
        assert (code, complained.count("\n")) == (2, 1)
        assert f"{option} is {count}, but no machine of the cluster has more than" in complained


def test_a_process_and_a_machine_are_lost_and_nothing_differs(
    cluster: Any, reference: SixRuns, tmp_path: Path, meanwhile: Callable[[Callable[[], None]], None]
):
    six, (other,) = SixRuns(tmp_path / "suite"), cluster.worker_nodes
    raylet = other.all_processes["raylet"][0].process.pid
    killed: list[str] = []

    def kill() -> None:
        first, process = six.process_in_the_middle()
        os.kill(process, signal.SIGKILL)
        second, there = until(
            "a run on the other machine",
            lambda: (found := six.process_in_the_middle(process)) and parent_of(found[1]) == raylet and found,
            every=0.02,
        )
        cluster.remove_node(other, allow_graceful=False)
        killed.extend([first, second])
        until("the end of the process on the lost machine", lambda: parent_of(there) is None)

    meanwhile(kill)
    code, said, complained = six.run("--launcher", "ray", "--address", cluster.address)
    assert code == 0
    assert said.startswith("digits: ")  # nothing of Ray's before the results
    (line,) = complained.strip().split("\n")
    assert line.startswith("warning: the machine 127.0.0.1 ")
    assert "was lost; its runs continue on others" in line
    assert (six.rows(), six.models()) == (reference.rows(), reference.models())
    for name in killed:  # these runs started twice
        assert (six.out / "logs" / f"runs-digits-{name}.log").read_text().count("started on ") >= 2


def test_a_run_that_lost_one_of_its_processes_is_repeated(
    cluster: Any, tmp_path: Path, meanwhile: Callable[[Callable[[], None]], None]
):
    six = SixRuns(tmp_path / "suite")

    def kill() -> None:
        _, process = six.process_in_the_middle()
        (other,) = children_of(process)
        os.kill(other, signal.SIGKILL)

    meanwhile(kill)
    options = ["--launcher", "ray", "--address", cluster.address, "--methods", "erm", "--devices", "2"]
    code, _, complained = six.run(*options)
    assert (code, complained) == (0, "")
    log = (six.out / "logs/runs-digits-erm-s0.log").read_text()
    assert log.count("started on ") == 2
    assert log.count("another process of this run has ended") == 1


def test_a_run_with_bad_input_is_not_repeated(cluster: Any, tmp_path: Path):
    six = SixRuns(tmp_path / "suite")
    folder = six.out / "runs/digits/erm-s0"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("precious")
    code, _, complained = six.run("--launcher", "ray", "--address", cluster.address, "--methods", "erm")
    assert code == 1
    assert "failed: runs/digits/erm-s0: " in complained
    assert "is not empty" in complained
    assert (six.out / "logs/runs-digits-erm-s0.log").read_text().count("started on ") == 1
    assert [file.name for file in folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("listens", [False, True], ids=["nobody", "another program"])
def test_an_address_without_a_cluster_is_an_error_within_20_s(
    listens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert module.CONNECT_SECONDS + module.HEALTH_SECONDS < 20
    monkeypatch.setattr(module, "HEALTH_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if not listens:
            server.close()
        start = time.monotonic()
        code, _, complained = SixRuns(tmp_path / "suite").run("--launcher", "ray", "--address", address)
    assert (code, complained.count("\n")) == (2, 1)
    assert f'--address is "{address}", where no Ray cluster can be reached' in complained
    assert time.monotonic() - start < 20


def test_the_cluster_of_this_machine_that_is_gone_is_an_error_within_20_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "HEALTH_SECONDS", 2.0)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # as the note that a dead cluster leaves
    start = time.monotonic()
    code, _, complained = SixRuns(tmp_path / "suite").run("--launcher", "ray")
    assert (code, complained.count("\n")) == (2, 1)
    assert '--address is "auto", where no Ray cluster can be reached' in complained
    assert time.monotonic() - start < 20


def test_an_address_that_is_none(tmp_path: Path):
    code, _, complained = SixRuns(tmp_path / "suite").run("--launcher", "ray", "--address", "somewhere")
    assert code == 2
    assert '--address is "somewhere"; give HOST:PORT' in complained


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, complained = SixRuns(tmp_path / "suite").run("--launcher", "ray")
    assert (code, complained.count("\n")) == (2, 1)
    assert "pip install 'tcm[ray]'" in complained
