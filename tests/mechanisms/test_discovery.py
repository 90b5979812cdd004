import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tcm.cli import main
from tcm.config import to_json
from tcm.data.task import Task
from tcm.errors import InputError
from tcm.mechanisms.discovery import PRESETS, load_mechanisms

OPTIONS = ["--data.benchmark", "digits", "--steps", "6", "--batch", "4", "--k", "2", "--bank.warmup", "2"]
OPTIONS += ["--save-every", "1", "--log-every", "1", "--device", "cpu"]


def settled(tmp_path: Path, *options: str) -> dict:
    """The bank's settings in config.json of a run with these options."""
    out = tmp_path / "-".join(options).replace("/", "")
    assert main(["mechanisms", *OPTIONS[:4], "--batch", "2", "-q", "--steps", "1", "--out", str(out), *options]) == 0
    return json.loads((out / "config.json").read_text())["bank"]


def test_the_preset_says_where_options_start_and_given_ones_stand(tmp_path: Path):
    small = settled(tmp_path, "--k", "1")
    assert small == to_json(PRESETS["small"])
    same = settled(tmp_path, "--k", "1", "--bank.warmup", "8000", "--bank.generator.halvings", "2")
    assert same["warmup"] == 8000
    assert same["generator"] == {**small["generator"], "halvings": 2}
    assert settled(tmp_path, "--k", "1", "--preset", "paper", "--bank.generator.width", "4")["critic"]["width"] == 64


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--k", "0"], ["--k is 0", "1 or more"]),
        (["--bank.warmup", "-1"], ["--bank.warmup is -1"]),
        (["--bank.lr", "-1"], ["--bank.lr is -1"]),
        (["--data.crop", "30", "--bank.generator.halvings", "2"], ["--data.crop is 30", "--bank.generator.halvings"]),
        (["--preset", "papper"], ["--preset", "papper"]),
        (["--batch", "5000"], ["--batch is 5000"]),
        (["--bank.lr", "1e30", "--log-every", "1"], ["not finite", "lower --bank.lr"]),
    ],
)
def test_bad_input_is_one_line(options: list[str], words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    given = ["--data.benchmark", "digits", "--steps", "6", "--batch", "4", "-q", "--out", str(tmp_path / "run")]
    assert main(["mechanisms", *given, *options]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words), error


def test_the_saved_mechanisms_transport(digits: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = tmp_path / "run"
    assert main(["mechanisms", *OPTIONS, "-q", "--out", str(run)]) == 0
    assert "share of wins" in capsys.readouterr().out
    config, bank = load_mechanisms(run)
    assert config.k == 2
    made = bank.transport(torch.rand(3, 3, 32, 32), to="source")
    assert made.shape == (2, 3, 3, 32, 32)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(sum(row[f"wins/source/{i}"] for i in range(2)) == pytest.approx(1) for row in rows if "lr" in row)
    assert main(["mechanisms", *OPTIONS, "-q", "--out", str(run)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(["predict", str(run), str(tmp_path)]) == 2
    assert "holds no classifier" in capsys.readouterr().err


def test_a_run_of_a_method_holds_no_mechanisms(tmp_path: Path):
    run = tmp_path / "run"
    assert main(["train", "erm", "--data.benchmark", "digits", "--steps", "1", "-q", "--out", str(run)]) == 0
    with pytest.raises(InputError, match="holds no mechanisms"):
        load_mechanisms(run)


def test_a_killed_run_goes_on_to_the_same_mechanisms(tmp_path: Path):
    def start(out: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tcm.cli", "mechanisms", *OPTIONS, "-q", "--out", str(out)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = start(whole)
    process = start(killed)
    deadline = time.monotonic() + 120
    while not (killed / "state.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "model.safetensors").exists()
    assert undisturbed.wait(120) == 0
    assert start(killed).wait(120) == 0
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
