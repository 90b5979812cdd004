"""Every image's counterfactuals on disk, whatever happens on the way."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tcm.cli.app import main
from tcm.data.augment import as_input, as_stored
from tcm.data.task import Task, load_task
from tcm.mechanisms.competition import winners
from tcm.mechanisms.counterfactual_store import open_counterfactuals
from tcm.mechanisms.distance import transport_batch_size
from tcm.mechanisms.load import load_mechanisms
from tcm.mechanisms.pair import SIDES
from tcm.mechanisms.train import MechanismsConfig, bank_config
from tcm.mechanisms.transport import open_for_transport, win_shares
from tcm.training.run_folder import Run

OPTIONS = ["--data.benchmark", "digits", "--steps", "2", "--batch", "4", "--k", "2", "--device", "cpu"]
OPTIONS += ["--bank.warmup", "1"]
NAMES = ["images.npy", "index.json", "losses.npy", "winner.npy"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the digits."""
    folder = tmp_path_factory.mktemp("mechanisms") / "run"
    assert main(["mechanisms", *OPTIONS, "-q", "--out", str(folder)]) == 0
    return folder


def contents(out: Path) -> dict[str, bytes]:
    return {
        f"{side}/{file.name}": file.read_bytes() for side in ("source", "target") for file in (out / side).iterdir()
    }


def test_both_domains_with_winners_and_losses(run: Path, digits: Task, capsys: pytest.CaptureFixture[str]):
    assert main(["transport", str(run), "-q", "--batch", "300"]) == 0
    assert "share of wins" in capsys.readouterr().out
    bank = load_mechanisms(run).bank
    for origin, other, store in zip(SIDES, reversed(SIDES), digits, strict=True):
        assert sorted(file.name for file in (run / "transported" / origin).iterdir()) == NAMES
        found = open_counterfactuals(run / "transported" / origin, store, k=2)
        assert found.images.shape == (len(store), 2, 32, 32, 3)
        # The last images stand in the last, shorter batch.
        some = as_input(store.images[-4:])
        with torch.inference_mode():
            made = as_stored(bank.transport(some, to=other)).transpose(0, 1)
            losses, _ = bank.scored(2 * some - 1, origin)
        assert (found.images[-4:].int() - made.int()).abs().max() <= 1  # batches of other sizes round differently
        torch.testing.assert_close(found.losses[-4:], losses.T, rtol=1e-4, atol=1e-4)
        assert (found.winner == winners(found.losses.T)).all()
        shares = [(found.winner == i).float().mean().item() for i in range(2)]
        assert win_shares(run / "transported")[origin] == pytest.approx(shares)
    before = contents(run / "transported")
    assert main(["transport", str(run), "-q"]) == 0
    assert "is finished; nothing to do" in capsys.readouterr().out
    assert contents(run / "transported") == before


def start(run: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tcm", "transport", str(run), "--out", str(out), "--device", "cpu", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


def test_interrupted_in_every_way_it_ends_with_the_same_bytes(run: Path, tmp_path: Path):
    whole, out = tmp_path / "whole", tmp_path / "out"
    undisturbed = start(run, whole, "--batch", "8")
    # Killed at once in the source, killed in the target, then asked to stop.
    for side, number in (("source", signal.SIGKILL), ("target", signal.SIGKILL), ("target", signal.SIGTERM)):
        process = start(run, out, "--batch", "8")
        before = note(out / side)
        wait_for(lambda before=before, side=side: note(out / side) not in ("", before), process)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), stderr
        assert "Traceback" not in stderr
        assert not (out / "target" / "index.json").exists()
    assert "repeat the command to continue" in stderr.splitlines()[-1]
    last = start(run, out)  # the batch is that of the beginning
    assert last.wait(120) == 0, last.communicate()
    assert undisturbed.wait(120) == 0
    assert sorted(contents(out)) == sorted(f"{side}/{name}" for side in ("source", "target") for name in NAMES)
    assert contents(out) == contents(whole)


def note(folder: Path) -> str:
    """What the folder says of its progress; empty until some images are done."""
    try:
        text = (folder / "progress.json").read_text()
    except FileNotFoundError:
        return ""
    return "" if '"done": 0' in text else text


def test_a_batch_fits_the_memory(run: Path):
    config = load_mechanisms(run).config
    assert transport_batch_size(config.bank.generator, 32, torch.device("cpu")) == 256
    assert transport_batch_size(config.bank.generator, 10_000, torch.device("cpu")) == 1


def test_a_batch_on_a_large_gpu_stays_within_what_its_padding_can_index(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**12, 10**12))
    config = replace(MechanismsConfig(), bank=bank_config("paper", small=False))
    batch = transport_batch_size(config.bank.generator, 256, torch.device("cuda"))
    assert 200 < batch < 256  # 256 images of 64 maps, twice, are 2^31 numbers and more
    assert 2 * batch * 64 * (256 + 6) ** 2 < 2**31


# Bad input: one line each.


def refusal(capfd: pytest.CaptureFixture[str], *words: object) -> str:
    capfd.readouterr()
    assert main([str(word) for word in words]) == 2
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("error: ")
    return said


def draw_domains(root: Path) -> list[str]:
    """Two small domains, and the options that name them."""
    for seed, path in enumerate(f"{domain}/{name}/{i}.png" for domain in "st" for name in "ab" for i in range(5)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / path)
    return ["--data.root", str(root), "--data.source", "s", "--data.target", "t"]


def train_small(data: list[str], out: Path, *options: str) -> Path:
    sizes = {"generator.width": 2, "generator.halvings": 1, "generator.kernel": 3, "critic.width": 2}
    small = [word for name, size in {**sizes, "critic.halvings": 2}.items() for word in (f"--bank.{name}", str(size))]
    small += ["--k", "1", "--steps", "1", "--batch", "2", "-q", "--out", str(out)]
    assert main(["mechanisms", *data, *small, *options]) == 0
    return out


def test_runs_that_cannot_transport(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    assert "is not a run folder" in refusal(capfd, "transport", tmp_path)
    assert "--batch is 0; give 1 or more" in refusal(capfd, "transport", run, "--batch", "0")
    copy = Path(shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("transported")))
    (copy / "model.safetensors").unlink()
    assert "copy is not finished; repeat its command" in refusal(capfd, "transport", copy)
    assert not (copy / "transported").exists()


def test_data_that_have_changed(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    data = draw_domains(tmp_path / "data")
    run = train_small(data, tmp_path / "run", "--data.size", "16")
    assert main(["transport", str(run), "-q"]) == 0
    open_for_transport(run)
    (tmp_path / "data" / "s" / "a" / "0.png").unlink()
    for words in (("transport", run), ("transport", run, "--out", tmp_path / "new"), ("figure", "mechanisms", run)):
        said = refusal(capfd, *words)
        assert "run was trained on other images than its data has now; restore them or train again in a new" in said
    (run / "inputs.json").unlink()  # a run of an earlier version: the store still tells
    said = refusal(capfd, "transport", run)
    assert "transported/source holds the counterfactuals of 10 images instead of 9; delete it" in said
    shutil.copy(tmp_path / "data" / "s" / "a" / "1.png", tmp_path / "data" / "s" / "a" / "0.png")
    assert "transported/source was made from other images" in refusal(capfd, "transport", run)
    tensors, about = Run(run).load_model()
    Run(run).save_model(tensors, {**about, "classes": ["a", "c"]})
    assert "the classes of s are a, b, but" in (said := refusal(capfd, "transport", run, "--out", tmp_path / "new"))
    assert "was trained on a, c; restore the data" in said
    shutil.rmtree(tmp_path / "data" / "s")
    assert 'has no domain "s"' in refusal(capfd, "transport", run, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_images_of_a_side_that_the_networks_cannot_return(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    data = draw_domains(tmp_path / "data")
    run = train_small(data, tmp_path / "run", "--data.size", "17", "--data.crop", "16")
    said = refusal(capfd, "transport", run)
    assert "the images of s are stored with side 17, but the generators" in said
    assert "need a multiple of 2, 4 or more; train mechanisms with such a --data.size" in said


def test_folders_that_cannot_be_written(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "file").touch()
    assert "--out" in (said := refusal(capfd, "transport", run, "--out", tmp_path / "file"))
    assert "file cannot be made" in said
    (tmp_path / "mine" / "source").mkdir(parents=True)
    (tmp_path / "mine" / "source" / "holiday.jpg").touch()
    assert "mine/source is not empty" in refusal(capfd, "transport", run, "--out", tmp_path / "mine")


def test_a_store_of_another_run(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    assert main(["transport", str(run), "-q", "--out", str(tmp_path / "out")]) == 0
    before = contents(tmp_path / "out")
    other = tmp_path / "other"
    assert main(["mechanisms", *OPTIONS, "--seed", "1", "-q", "--out", str(other)]) == 0
    said = refusal(capfd, "transport", other, "--out", tmp_path / "out")
    assert f"out/source was made by other mechanisms, those of {run}; delete it or choose another --out" in said
    assert contents(tmp_path / "out") == before


def test_a_task_opens_by_the_run(run: Path, digits: Task):
    setup = open_for_transport(run, "cpu")
    assert setup.task.source.fingerprint == digits.source.fingerprint
    assert load_task(setup.config.data).target.fingerprint == digits.target.fingerprint != digits.source.fingerprint
