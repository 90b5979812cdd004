import os
import subprocess
import sys
from pathlib import Path

import pytest

from tcm.cli import COMMANDS, main


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
    command = [sys.executable, "-m", "tcm.cli", "fit", "--preset", "papper", "--out", "nowhere"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    found = subprocess.run(command, env=environment, capture_output=True, encoding=encoding)
    assert found.returncode == 2
    assert found.stderr.startswith(
        "error: invalid choice 'papper' for argument '--preset'. Expected one of ('default',"
    )
    assert found.stderr.count("\n") == 1
