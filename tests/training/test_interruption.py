"""Real processes, real signals: whatever happens to a run, repeating its command gives the same model."""

import io
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tcm.cli.app import main

STEPS = 60
COMMAND = [sys.executable, "-m", "tcm", "train", "erm", "--data.benchmark", "digits", "--steps", str(STEPS)]
COMMAND += ["--batch", "8", "--save-every", "5", "--log-every", "5", "--evaluate-every", "1000", "--device", "cpu"]
# The same program where no image fits on the device.
FED = "import sys, tcm.__main__, tcm.data.stream as s; s.fits = lambda *_: False; sys.exit(tcm.__main__.main())"


def start(out: Path, limit: Callable[[], None] | None = None, fed: bool = False) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", FED, *COMMAND[3:]] if fed else COMMAND
    return subprocess.Popen([*command, "--out", str(out)], env=environment, preexec_fn=limit, **pipes)


def finish(out: Path) -> tuple[int, str, str]:
    process = start(out)
    stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout, stderr


def wait_for_step(out: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Until metrics.jsonl holds a row of that step or a later one."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        file = out / "metrics.jsonl"
        if file.exists() and file.read_text().count("\n") >= step // 5:
            return
        time.sleep(0.002)
    raise AssertionError(f"step {step} never came: {process.communicate()}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of a run that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    code, stdout, stderr = finish(out)
    assert code == 0, stderr
    assert "target accuracy" in stdout.replace("\n", " ") or "accuracy" in stdout
    with redirect_stdout(io.StringIO()) as said:
        assert main([*COMMAND[3:], "--out", str(out)]) == 0
    assert "is finished; nothing to do" in said.getvalue()
    return (out / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("number", "fed"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_a_polite_signal_saves_and_says_how_to_resume(number: signal.Signals, fed: bool, whole: bytes, tmp_path: Path):
    process = start(tmp_path / "run", fed=fed)
    wait_for_step(tmp_path / "run", 10, process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "repeat the command to continue" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    code, _, stderr = finish(tmp_path / "run")
    assert code == 0, stderr
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == whole


def test_kill_at_any_moment_loses_only_the_steps_since_the_last_save(whole: bytes, tmp_path: Path):
    for step in (5, 25, 45):
        process = start(tmp_path / "run")
        wait_for_step(tmp_path / "run", step, process)
        process.kill()
        process.communicate()
    code, _, stderr = finish(tmp_path / "run")
    assert code == 0, stderr
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == whole


def test_a_full_disk_is_one_line_and_leaves_the_checkpoint_whole(whole: bytes, tmp_path: Path):
    process = start(tmp_path / "run")
    wait_for_step(tmp_path / "run", 10, process)
    process.terminate()
    process.communicate(timeout=60)
    before = (tmp_path / "run" / "state.pt").read_bytes()

    def tiny_disk() -> None:
        # No file may grow past 100 kB, less than a checkpoint: to the program this is a disk that runs full.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    process = start(tmp_path / "run", limit=tiny_disk)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "state.pt could not be written" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    assert (tmp_path / "run" / "state.pt").read_bytes() == before
    assert finish(tmp_path / "run")[0] == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == whole
