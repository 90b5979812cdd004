"""Runs on several processes: equal to those on one, and ended by signals and lost processes without losing anything."""

import atexit
import importlib
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.clusters import free_ports, until
from support.divided import ALL
from support.programs import children_of, is_alive, start, wait_for_step

from tcm.cli.app import main
from tcm.errors import InputError
from tcm.nn.divided import part_of, with_global_norms
from tcm.training import launch
from tcm.training.connection import World, joined, leave
from tcm.training.launch import external_world, require_devices, start_processes

SUPPORT = Path(__file__).parents[1] / "support"
# Adam divides by the size of a gradient. Where that is 0 but for rounding, as for a bias before instance normalisation
# or of a potential, the rounding shows.
WITH_ADAM = ("etd", "gta", "tcm-paper", "tcm-release", *(name for name in ALL if name.startswith("mechanisms")))


def compare(folder: Path, *only: str, **variables: str) -> None:
    """Runs `support/two_processes.py`, which writes what it finds into the folder."""
    path = os.pathsep.join([str(SUPPORT.parent), *sys.path])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **variables}
    command = [sys.executable, str(SUPPORT / "two_processes.py"), str(folder), *only]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes and one find."""
    folder = tmp_path_factory.mktemp("processes")
    compare(folder)
    found = {number: json.loads((folder / f"{number}.json").read_text()) for number in ("1", "2", "4")}
    return {**found, "folder": folder}


@pytest.mark.parametrize("name", ALL)
def test_two_processes_compute_what_one_does(name: str, found: dict[str, Any]):
    seen = found["2"]["learners"][name]
    assert seen["change"] > 0.01
    assert seen["difference"] < (1e-9 if name in WITH_ADAM else 1e-12)
    assert seen["processes agree"]


@pytest.mark.gpu
def test_two_processes_on_a_gpu_compute_what_one_does(tmp_path: Path):
    """Both on the same GPU, in double precision. Some of a GPU's sums are in any order, so the limit is wider."""
    compare(tmp_path, "learners", TCM_TEST_DEVICE="cuda:0")
    seen = json.loads((tmp_path / "2.json").read_text())["learners"]
    assert set(seen) == set(ALL)
    assert [name for name in ALL if not seen[name]["change"] > 0.01] == []
    limits = {name: 1e-7 if name in WITH_ADAM else 1e-9 for name in ALL}
    assert {name: seen[name]["difference"] for name in ALL if not seen[name]["difference"] < limits[name]} == {}


@pytest.mark.parametrize("mistake", ["norms of each process", "losses of each process"])
def test_the_comparison_finds_the_usual_mistakes(mistake: str, found: dict[str, Any]):
    assert found["2"][mistake]["difference"] > 0.01


def test_a_run_that_the_same_number_of_processes_resumes_is_the_same_bit_by_bit(found: dict[str, Any]):
    assert set(found["2"]["resumed"].values()) == {0.0}


@pytest.mark.parametrize("count", ["1", "4"])
def test_another_number_of_processes_resumes_a_run(count: str, found: dict[str, Any]):
    assert len(found[count]) == 3
    assert max(found[count].values()) < 1e-9


def test_rows_and_sums_of_all_processes_have_the_gradients_of_one(found: dict[str, Any]):
    assert max(found["2"]["functions"].values()) < 1e-12


def test_batch_normalisation_sees_the_images_of_all_processes(found: dict[str, Any]):
    assert max(found["2"]["norms"].values()) < 1e-12


def test_dropout_differs_between_processes_and_nothing_else_does(found: dict[str, Any]):
    assert set(found["2"]["noise"].values()) == {True}


def test_an_error_in_one_process_is_raised_in_all(found: dict[str, Any]):
    own, given = "`data.crop` is 8; give 32", found["2"]["errors"]
    assert given["together 0"] == [own, own]
    assert given["together 1"] == [f"process 1: {own}", own]
    assert len(set(given["from first"])) == 1


def test_processes_write_the_counterfactuals_together_and_one_completes_them(found: dict[str, Any]):
    first, second = found["2"]["transport"]
    assert first == second
    assert "stopped at image 48 of" in first  # three batches of 8 by each process
    for name in (f"{side}/{array}.npy" for side in ("source", "target") for array in ("images", "winner", "losses")):
        whole, stopped, alone = ((found["folder"] / out / name).read_bytes() for out in ("whole", "stopped", "alone"))
        assert whole == stopped == alone, name


@pytest.mark.parametrize(("size", "count"), [(2, 7), (3, 7), (4, 4), (2, 0)])
def test_the_parts_of_a_batch_are_all_of_it_and_nearly_equal(size: int, count: int):
    parts = [range(count)[part_of(rank, size, count)] for rank in range(size)]
    assert [row for part in parts for row in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_timm_layers_keep_their_activation_and_their_names(tmp_path: Path):
    from timm.layers.norm_act import BatchNormAct2d

    network = torch.nn.Sequential(BatchNormAct2d(3)).double()
    images, before = torch.randn(4, 3, 5, 5).double(), network.state_dict()
    expected = network(images)
    dist.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        divided = with_global_norms(network)
        torch.testing.assert_close(divided(images), expected)
    finally:
        dist.destroy_process_group()
    assert divided.state_dict().keys() == before.keys()
    assert expected.min() == 0


# The program, with real processes and signals.

STEPS = 40
COMMAND = ["train", "erm", "--data.benchmark", "digits", "--steps", str(STEPS), "--batch", "8", "--save-every", "5"]
COMMAND += ["--log-every", "5", "--evaluate-every", "1000", "--device", "cpu"]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_signals_and_lost_processes_end_a_run_and_one_process_completes_it(tmp_path: Path):
    out, alone = tmp_path / "run", tmp_path / "alone"
    process = start([*COMMAND, "--devices", "2", "--out", str(out)])
    wait_for_step(out, 5, process)
    (other,) = children_of(process.pid)
    process.send_signal(signal.SIGTERM)  # to the first process alone
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (128 + signal.SIGTERM, "")
    assert [line for line in stderr.splitlines() if "repeat the command to continue" in line] == stderr.splitlines()
    assert not is_alive(other)

    process = start([*COMMAND, "--devices", "2", "--out", str(out)])
    wait_for_step(out, 20, process)
    (other,) = children_of(process.pid)
    os.kill(other, signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (2, "")
    assert len(stderr.splitlines()) == 1
    assert "another process of this run has ended" in stderr
    assert json.loads((out / "environment.json").read_text())["processes"] == 2

    with redirect_stdout(io.StringIO()):
        assert main([*COMMAND, "--quiet", "--out", str(out)]) == 0
        assert main([*COMMAND, "--quiet", "--out", str(alone)]) == 0
    assert json.loads((out / "environment.json").read_text())["processes"] == 1
    rows, expected = (
        [*map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())] for folder in (out, alone)
    )
    assert {row["step"] for row in rows} >= {row["step"] for row in expected}
    # In single precision rounding decides which units are active, and differences grow from there.
    assert rows[0]["loss/classification"] == pytest.approx(expected[0]["loss/classification"], rel=1e-4)
    assert (out / "model.safetensors").exists()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_ctrl_c_while_the_other_process_has_not_come_ends_the_program_at_once(tmp_path: Path):
    process = start([*COMMAND, "--devices", "2", "--out", str(tmp_path / "run")])
    other = until("the other process", lambda: next((child for child in children_of(process.pid) if waits(child)), 0))
    os.kill(other, signal.SIGKILL)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=15)
    assert (process.returncode, stdout, stderr) == (130, "", "stopped; repeat the command to continue\n")


def waits(process: int) -> bool:
    """Whether the process was started for a part of the images."""
    try:
        return launch.PARENT.encode() in Path(f"/proc/{process}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


# Mistakes.


def said(*options: str) -> str:
    """The one line that the command complains with."""
    with redirect_stderr(io.StringIO()) as stderr:
        assert main([*COMMAND, *options]) == 2
    (line,) = stderr.getvalue().splitlines()
    return line


def test_more_processes_than_images_in_a_batch(tmp_path: Path):
    assert "--batch is 8, but the run has 9 processes" in said("--devices", "9", "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_no_process_at_all(tmp_path: Path):
    assert "--devices is 0; give 1 or more" in said("--devices", "0", "--out", str(tmp_path / "run"))


def test_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    require_devices(2, "cuda")
    with pytest.raises(InputError, match="`devices` is 3, but the number of GPUs here is 2"):
        require_devices(3, "cuda")


def test_a_process_that_was_started_by_one_that_has_ended_does_not_wait(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(launch.PARENT, "999999999")
    with pytest.raises(InputError, match="the process that started this one has ended"):
        external_world()


def test_a_first_machine_whose_name_is_not_known():
    with pytest.raises(InputError, match=r"no-such-machine.invalid, is not known here .*; set MASTER_ADDR"):
        joined(World(1, 2, 0, 1, "tcp://no-such-machine.invalid:15000"), on_gpu=False)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_no_thread_of_the_connections_is_left_when_a_process_ends():
    """One that releases a tensor while Python ends would abort the process, which then counts as lost."""

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before, (port,) = threads(), free_ports(1)
    sys.modules.pop("torch.distributed.nn.functional", None)  # as in a new process
    processes = joined(World(0, 1, 0, 1, f"tcp://127.0.0.1:{port}"), on_gpu=False)
    importlib.import_module("torch.distributed.nn.functional")  # as lightning-fabric does
    dist.all_reduce(torch.ones(1), group=processes.group)
    assert threads() > before
    atexit.unregister(leave)
    leave()
    assert threads() == before


def test_places_come_from_torchrun_or_srun(monkeypatch: pytest.MonkeyPatch):
    assert external_world() is None
    for name, value in {"SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_JOB_ID": "123456"}.items():
        monkeypatch.setenv(name, value)
    assert external_world() is None  # a batch script that does not use srun
    step = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "gpu[07-08]"}
    for name, value in {**step, "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert external_world() == (3, 4, 1, 2, "tcp://gpu07:18456")
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert external_world() == (5, 8, 1, 4, "env://")
    with pytest.raises(InputError, match="`devices` is 2, but 4 processes were started on this machine"):
        start_processes(2, "cpu", 8)
    with pytest.raises(InputError, match="`batch` is 6, but the run has 8 processes"):
        start_processes(1, "cpu", 6)
