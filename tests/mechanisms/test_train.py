import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tcm.cli.app import main
from tcm.config import to_json
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError
from tcm.mechanisms import usage
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.load import load_mechanisms
from tcm.mechanisms.quality import run_quality
from tcm.mechanisms.train import AUTO_K, FORMS, MechanismsConfig, bank_config, require_room
from tcm.nn.backbone import BackboneConfig
from tcm.training.run_folder import Run

OPTIONS = ["--data.benchmark", "digits", "--steps", "6", "--batch", "4", "--k", "2", "--bank.warmup", "2"]
OPTIONS += ["--save-every", "1", "--log-every", "1", "--device", "cpu"]


def settled(tmp_path: Path, *options: str) -> dict:
    """The bank's settings in config.json of a run with these options."""
    out = tmp_path / "-".join(options).replace("/", "")
    few = ["--batch", "2", "--steps", "1", "--bank.warmup", "0"]
    assert main(["mechanisms", *OPTIONS[:2], *few, "-q", "--out", str(out), *options]) == 0
    return json.loads((out / "config.json").read_text())["bank"]


def test_the_form_gives_the_defaults_of_the_options(tmp_path: Path):
    small = settled(tmp_path, "--k", "1")
    assert small == {**to_json(bank_config("paper", small=True)), "warmup": 0}
    same = settled(tmp_path, "--k", "1", "--bank.pool", "7", "--bank.generator.halvings", "2")
    assert same["pool"] == 7
    assert same["generator"] == {**small["generator"], "halvings": 2}
    other = settled(tmp_path, "--k", "1", "--form", "disentangled", "--bank.critic.width", "4")
    expected = {**to_json(bank_config("disentangled", small=True)), "warmup": 0}
    assert other == {**expected, "critic": {**expected["critic"], "width": 4}}


@pytest.mark.parametrize(
    ("steps", "warmup", "used"),
    [(4100, 8000, 2050), (8000, 8000, 4000), (8001, 8000, 8000), (250, 200, 200), (1, 9, 0)],
)
def test_a_training_that_is_not_longer_than_the_warmup_competes_in_its_second_half(steps: int, warmup: int, used: int):
    config = MechanismsConfig(data=DataConfig(benchmark="digits"), steps=steps, bank=bank_config("paper", small=True))
    assert replace(config, bank=replace(config.bank, warmup=warmup)).resolved().bank.warmup == used


def test_small_networks_change_no_more_than_size_pace_and_weights_of_the_disentangled_form():
    for name, form in FORMS.items():
        whole, small = to_json(form), to_json(bank_config(name, small=True))
        assert bank_config(name, small=False) == form
        changed = {key for key, value in small.items() if value != whole[key]}
        weights = {"cycle", "identity", "overlap"} if name == "disentangled" else set()
        assert changed <= {"generator", "critic", "warmup", "lr", "critic_lr", *weights}
        assert small["generator"]["residual"] == whole["generator"]["residual"]


def test_the_form_paper_has_the_settings_of_the_paper():
    paper = FORMS["paper"]
    assert (paper.critic_sees, paper.score, paper.overlap, paper.generator.residual) == ("each", "total", 0, False)
    assert (paper.cycle, paper.identity, paper.warmup, paper.lr, paper.beta1, paper.pool) == (
        10,
        5,
        8000,
        2e-4,
        0.5,
        50,
    )
    assert (paper.warmup_assignment, paper.assignment) == ("all", "competition")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--k", "0"], ["--k is 0", "1 or more"]),
        (["--bank.warmup", "-1"], ["--bank.warmup is -1"]),
        (["--bank.lr", "-1"], ["--bank.lr is -1"]),
        (["--data.crop", "30", "--bank.generator.halvings", "2"], ["--data.crop is 30", "--bank.generator.halvings"]),
        (["--data.crop", "4"], ["--data.crop is 4", "give 8 to 32"]),
        (["--data.crop", "8"], ["--data.crop is 8", "critic with 2 halvings needs 12", "--bank.critic.halvings"]),
        (["--data.crop", "8", "--bank.generator.halvings", "3"], ["--data.crop is 8", "16 or more"]),
        (["--bank.critic.halvings", "4"], ["--data.crop is 32", "needs 48 or more", "--bank.critic.halvings"]),
        (["--bank.generator.kernel", "4"], ["--bank.generator.kernel is 4", "odd"]),
        (["--bank.generator.width", "0"], ["--bank.generator.width is 0", "1 or more"]),
        (["--k", "100000000"], ["--k is 100000000", "the memory holds", "smaller --k"]),
        (["--k", "many"], ["--k", "many"]),
        (["--k", "2.5"], ["--k", "2.5"]),
        (["--bank.lr", "nan"], ["--bank.lr is nan", "0 or more"]),
        (["--bank.overlap", "nan"], ["--bank.overlap is nan", "0 or more"]),
        (["--bank.overlap", "-1"], ["--bank.overlap is -1", "0 or more"]),
        (["--bank.cycle", "inf"], ["--bank.cycle is inf", "0 or more"]),
        (["--form", "papper"], ["--form", "papper"]),
        (["--batch", "5000"], ["--batch is 5000"]),
        (["--bank.lr", "1e30", "--log-every", "1"], ["not finite", "lower --bank.lr"]),
        (["--form", "disentangled", "--bank.lr", "1e30", "--log-every", "1"], ["not finite", "lower --bank.lr"]),
    ],
)
def test_bad_input_is_one_line(options: list[str], words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    given = ["--data.benchmark", "digits", "--steps", "6", "--batch", "4", "-q", "--out", str(tmp_path / "run")]
    assert main(["mechanisms", *given, *options]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words), error


@pytest.mark.parametrize("form", ["disentangled", "paper"])
def test_numbers_that_run_away_leave_the_last_good_state(form: str, tmp_path: Path):
    rate = ["--form", form, "--bank.lr", "1e15", "--steps", "9"]
    assert main(["mechanisms", *OPTIONS, "-q", "--out", str(tmp_path / "run"), *rate]) == 2
    state = torch.load(tmp_path / "run" / "state.pt", weights_only=True)
    assert all(bool(value.isfinite().all()) for value in state["learner"].values())
    assert {"component_change", "wins", "idle", "_extra_state"} <= state["learner"].keys()
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("options", [["--k", "100000000"], ["--data.crop", "8"]])
def test_after_a_mistake_the_folder_is_free(options: list[str], tmp_path: Path):
    given = ["mechanisms", "--data.benchmark", "digits", "--steps", "1", "--batch", "2", "-q", "--out", str(tmp_path)]
    assert main([*given, *options]) == 2
    assert list(tmp_path.iterdir()) == []
    assert main([*given, "--k", "1"]) == 0


def test_there_must_be_room_for_weights_gradients_and_moments():
    config = MechanismsConfig(k=3)
    weights = sum(parameter.numel() for parameter in config.bank.generator.build().parameters())
    needed = 3 * 2 * weights * 4 * 4
    require_room(config, needed)
    with pytest.raises(InputError, match="`k` is 3, but the memory holds 2 mechanisms of"):
        require_room(config, needed - 1)


def three_unused(bank: MechanismBank) -> list[float]:
    """Usage shares in which mechanisms 1, 2 and 5 do nothing."""
    working = [float(number not in (1, 2, 5)) for number in bank.active]
    return [share / sum(working) for share in working]


def listed(said: str) -> list[str]:
    """The mechanisms in the table of wins."""
    return [line.split()[1] for line in said.splitlines() if "%" in line]


def auto(out: Path, *options: str) -> int:
    given = [*OPTIONS[:4], "--batch", "3", "--k", "auto", "--log-every", "1", "--evaluate-every", "2", "-q"]
    return main(["mechanisms", *given, "--device", "cpu", *options, "--out", str(out)])


@pytest.mark.parametrize("form", ["disentangled", "paper"])
def test_auto_starts_with_many(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    # With few steps nothing need die, but nothing must break either.
    assert auto(tmp_path / "run", "--form", form, "--bank.warmup", "1") == 0
    run = Run(tmp_path / "run")
    config, bank = load_mechanisms(run.folder)
    assert config.k == "auto"
    rows = run.metrics()
    assert {f"wins/target/{i}" for i in range(AUTO_K)} <= rows[0].keys()
    assert [row["k"] for row in rows if "k" in row][-1] == bank.k <= AUTO_K
    assert f"Mechanisms that remain: {bank.k}" in capsys.readouterr().out


def test_auto_drops_unused_mechanisms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(usage, "usage_shares", three_unused)
    assert auto(tmp_path / "run", "--bank.warmup", "0") == 0
    said = capsys.readouterr().out
    assert "Mechanisms that remain: 5" in said
    assert "unused" not in said
    assert listed(said) == ["1", "2", "3", "4", "5"]
    run = Run(tmp_path / "run")
    tensors, about = run.load_model()
    assert (about["k"], about["numbers"]) == (5, [0, 3, 4, 6, 7])
    assert {name.split(".")[1] for name in tensors if name.startswith("mechanisms.")} == {*"01234"}
    assert load_mechanisms(run.folder).bank.transport(torch.rand(2, 3, 32, 32), to="target").shape[0] == 5
    counts = {row["step"]: row["k"] for row in run.metrics() if "k" in row}
    assert counts == {2: 8, 4: 5, 6: 5}
    last = [row for row in run.metrics() if "loss/critics" in row][-1]
    assert [i for i in range(AUTO_K) if f"wins/source/{i}" in last] == about["numbers"]
    assert sum(last[f"wins/source/{i}"] for i in about["numbers"]) == pytest.approx(1)


def test_nobody_is_dropped_before_the_competition_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usage, "usage_shares", three_unused)
    assert auto(tmp_path / "run", "--bank.warmup", "3") == 0
    counts = {row["step"]: row["k"] for row in Run(tmp_path / "run").metrics() if "k" in row}
    assert counts == {2: 8, 4: 8, 6: 5}


def test_what_is_dropped_at_the_very_end_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(usage, "usage_shares", three_unused)
    assert auto(tmp_path / "run", "--bank.warmup", "0", "--steps", "4") == 0
    said = capsys.readouterr().out
    assert listed(said) == ["1", "2", "3", "4", "5"]
    assert load_mechanisms(tmp_path / "run").bank.k == 5


def test_an_unused_mechanism_of_a_given_k_is_reported_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(usage, "usage_shares", three_unused)
    assert main(["mechanisms", *OPTIONS, "--evaluate-every", "1", "-q", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "Mechanism 2 is unused: its usage share is 0%; try a smaller --k, or --k auto" in said
    assert "One mechanism dominates" in said
    assert Run(tmp_path / "run").about_model()["numbers"] == [0, 1]


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
        command = [sys.executable, "-m", "tcm", "mechanisms", *OPTIONS, "-q", "--out", str(out)]
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


def test_distances_are_watched_at_every_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "run"
    watched = [*OPTIONS, "--form", "disentangled", "--evaluate-every", "3", "--watch.images", "40"]
    assert main(["mechanisms", *watched, "-q", "--out", str(out)]) == 0
    rows = [row for row in Run(out).metrics() if "frechet/untouched" in row]
    assert [row["step"] for row in rows] == [3, 6]
    names = {f"frechet/{side}/{name}" for side in ("source", "target") for name in ("0", "1", "together")}
    assert all(names <= set(row) for row in rows)
    assert rows[0]["frechet/untouched"] == rows[1]["frechet/untouched"]
    assert rows[0]["frechet/target/0"] != rows[1]["frechet/target/0"]
    printed = capsys.readouterr().out
    assert f"between the untouched domains: {rows[0]['frechet/untouched']:.1f}" in printed
    mean = (rows[1]["frechet/target/0"] + rows[1]["frechet/target/1"]) / 2
    assert f"{mean:.1f}" in printed
    assert f"{rows[1]['frechet/target/together']:.1f}" in printed
    # The last row is what tcm quality finds in the finished run.
    found = run_quality(out, BackboneConfig(), 40, "cpu", quiet=True)
    assert found.frechet.transported["target"] == pytest.approx(
        [rows[1][f"frechet/target/{n}"] for n in ("0", "1", "together")]
    )


def test_watching_needs_images_and_a_trained_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "run"
    assert main(["mechanisms", *OPTIONS, "-q", "--out", str(out), "--watch.images", "1"]) == 2
    assert "--watch.images is 1; give 2 or more" in capsys.readouterr().err
    assert not out.exists()
    options = ["--watch.images", "4", "--backbone.name", "resnet18", "--backbone.no-pretrained"]
    assert main(["mechanisms", *OPTIONS, "-q", "--out", str(out), *options]) == 2
    said = capsys.readouterr().err
    assert "--backbone.name is resnet18 with random weights" in said
    assert "--backbone.weights" in said
    options = ["--watch.images", "4", "--backbone.weights", str(tmp_path / "none.safetensors")]
    assert main(["mechanisms", *OPTIONS, "-q", "--out", str(out), *options]) == 2
    said = capsys.readouterr().err
    assert "error: --backbone.weights" in said
    assert "none.safetensors" in said
    assert not (out / "config.json").exists()


def test_watching_changes_nothing_and_may_begin_in_the_midst_of_a_run(tmp_path: Path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["mechanisms", *OPTIONS, "-q", "--out", str(whole)]) == 0
    config = json.loads((whole / "config.json").read_text())
    del config["watch"]  # as an older version wrote it
    parts.mkdir()
    (parts / "config.json").write_text(json.dumps(config))
    assert main(["mechanisms", *OPTIONS, "-q", "--out", str(parts), "--watch.images", "40"]) == 0
    assert any("frechet/untouched" in row for row in Run(parts).metrics())
    one, two = (Run(folder).load_model()[0] for folder in (whole, parts))
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
