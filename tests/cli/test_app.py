import dataclasses
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tcm.bench.config import method_settings
from tcm.cli.app import main, parse, warning_lines
from tcm.cli.help import COMMANDS
from tcm.mechanisms.train import PRESETS as BANKS
from tcm.mechanisms.train import Preset as BankPreset
from tcm.mechanisms.train import preset_bank
from tcm.methods.tcm.tcm import PRESETS, Preset, preset_tcm
from tcm.pipeline import BANK_OF


def test_help_lists_every_command_with_purpose_and_example(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, command in COMMANDS.items():
        assert f"tcm {name}" in shown
        assert command.purpose in shown
        assert command.example in shown
        assert command.example.startswith(f"tcm {name}")


def test_help_does_not_wait_for_torch():
    code = "import sys; from tcm.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_its_options(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert not ended.value.code
    out = capsys.readouterr().out
    assert f"tcm {name}" in out
    if name.startswith("train"):
        assert all(option in out for option in ("--steps", "--seed", "--save-every", "--out", "--data.source-dir"))


def test_version(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tcm 0.")


def test_options_may_stand_in_any_order_and_quiet_is_quiet(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    options = ["--steps", "2", "-q", "--data.benchmark", "digits", "--out", str(tmp_path / "a"), "--batch", "4"]
    assert main(["train", "erm", *options]) == 0
    turned = ["--batch", "4", "--out", str(tmp_path / "a"), "--data.benchmark", "digits", "-q", "--steps", "2"]
    assert main(["train", "erm", *turned]) == 0
    out, err = capfd.readouterr()
    assert "is finished; nothing to do" in out
    assert err == ""


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_wrong_value_is_named_on_any_terminal(encoding: str):
    command = [sys.executable, "-m", "tcm", "fit", "--preset", "papper", "--out", "nowhere"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    found = subprocess.run(command, env=environment, capture_output=True, encoding=encoding)
    assert found.returncode == 2
    assert found.stderr.startswith(
        "error: invalid choice 'papper' for argument '--preset'. Expected one of ('default',"
    )
    assert found.stderr.count("\n") == 1


def config_of(command: str, *options: str) -> Any:
    """What the options of a command come to, without running it."""
    call = parse(command, ["--out", "nowhere", *options])
    assert isinstance(call, functools.partial)
    return call.keywords["config"]


SIZES = {
    "photographs": ([], False),
    "digits": (["--data.benchmark", "digits"], True),
    "small": (["--data.size", "40"], True),
    "small crops": (["--data.crop=32"], True),
    "crops of 64": (["--data.size", "72", "--data.crop", "64"], False),
}


@pytest.mark.parametrize(("data", "small"), SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_of_stage_2_sets_what_the_method_starts_from(preset: Preset, data: list[str], small: bool):
    expected = preset_tcm(preset, small)
    trained, fitted = (config_of(command, "--preset", preset, *data) for command in ("train tcm", "fit"))
    assert trained.method == fitted.classifier.method == expected
    assert trained.preset == fitted.preset == preset
    assert fitted.mechanisms.bank == preset_bank(BANK_OF[preset], small)


@pytest.mark.parametrize("preset", BANKS)
def test_a_preset_of_stage_1_sets_what_the_mechanisms_start_from(preset: BankPreset):
    assert config_of("mechanisms", "--preset", preset).bank == BANKS[preset]


def test_an_option_beside_the_preset_counts_and_the_preset_may_follow_an_equals_sign():
    found = config_of("train tcm", "--method.agreement", "0.5", "--preset=control").method
    assert (found.agreement, found.mixing) == (0.5, "none")


def test_a_warning_is_told_once(capsys: pytest.CaptureFixture[str]):
    show = warning_lines()
    for text in ("Art has 2 images", "Art has 2 images", "Clipart has 3 images"):
        show(UserWarning(text))
    assert capsys.readouterr().err == "warning: Art has 2 images\nwarning: Clipart has 3 images\n"


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["digits", "--out", "x"], method_settings("digits")),
        (["--seeds", "1", "--quick", "Digits", "--out", "office-home"], method_settings("digits")),
        (["--out", "digits", "office-home"], method_settings("office-home")),
        (["office-home", "--out", "x", "--size=32"], method_settings("office-home", size=32)),
    ],
)
def test_the_methods_of_a_suite_start_from_what_suits_its_images(options: list[str], settings: Any):
    call = parse("bench", options)
    assert isinstance(call, functools.partial)
    assert dataclasses.asdict(call.keywords["method"]) == dataclasses.asdict(settings)
