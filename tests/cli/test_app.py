import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from support.mistakes import draw_domain

from tcm.bench.config import method_settings
from tcm.cli.app import COMMANDS, commands_of, function_of, main, parsed_call, split_command
from tcm.cli.help import brief
from tcm.cli.interrupts import end_at_once, interruptible
from tcm.cli.messages import warning_printer
from tcm.cli.options import Option, option_groups
from tcm.mechanisms.train import FORMS, Form, bank_config
from tcm.methods import METHODS


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]):
    shown = []
    for words in (["--help"], ["help"], ["-h"], []):
        assert main(words) == 0
        shown.append(capsys.readouterr().out)
    assert len(set(shown)) == 1
    folded = {"tcm figure NAME" if name.startswith("figure") else f"tcm {name}" for name in COMMANDS}
    assert [name for name in folded if name not in shown[0]] == []
    assert all(command.example.startswith(f"tcm {name}") for name, command in COMMANDS.items())


def test_the_overview_has_one_line_for_each_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    first = next(place for place, line in enumerate(lines) if line.startswith("tcm demo "))
    commands = lines[first : lines.index("", first)]
    assert all(line.startswith("tcm ") for line in commands)


def test_the_two_folders_of_a_fit_leave_room_for_other_options(capsys: pytest.CaptureFixture[str]):
    assert main(["fit", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--data.source-dir" not in out
    assert "--backbone.weights" in out
    assert main(["fit", "--help-all"]) == 0
    assert "--data.source-dir" in capsys.readouterr().out


def test_help_does_not_wait_for_torch():
    code = "import sys; from tcm.cli.app import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


EXPLAINED = [name for name in COMMANDS if name != "train"] + ["train dann", "train tcm", "train tcm-paper"]


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_help_of_every_command_fits_on_a_screen(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert main(["help", *name.split()]) == 0
    assert capsys.readouterr().out == out
    lines = out.splitlines()
    assert lines[0].startswith(f"usage: tcm {name} ")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert "example:" in lines
    assert len([line for line in lines if line.startswith("  -")]) <= 10
    assert "None" not in out


@pytest.mark.parametrize("name", ["fit", "bench", "train tcm"])
def test_all_options_are_in_the_long_help(name: str, capsys: pytest.CaptureFixture[str]):
    assert main([*name.split(), "--help-all"]) == 0
    out = capsys.readouterr().out
    known = [option.name for group in option_groups(name, command_function(name))[1] for option in group.options]
    assert len(known) > 10
    assert [option for option in known if option not in out] == []
    assert "None" not in out.replace("None of", "")


def command_function(name: str) -> Any:
    _, command, _ = split_command(name.split())
    return function_of(command)


@pytest.mark.parametrize("group", ["train", "figure", "data"])
def test_a_group_lists_its_commands_on_a_screen(group: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["help", group])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert [name for name in commands_of(group) if f"tcm {name} " not in out] == []
    assert len(out.splitlines()) <= 40


def test_options_are_read_from_the_help_of_a_function():
    def command(run: Path, count: int | Literal["auto"] = 3, limit: int | None = None, loud: bool = True) -> int:
        """Do it.

        Args:
            run: Where.
            count: How many. More words.
            limit: At most. Default: all.
            loud: Say so.
        """
        return 0

    about, (named,) = option_groups("x", command)
    assert about == "Do it."
    assert named.options == [
        Option("--run PATH", "Where. (required)"),
        Option("--count INT or auto", "How many. More words. (default: 3)"),
        Option("--limit INT", "At most. Default: all."),
        Option("--loud, --no-loud", "Say so. (default: on)"),
    ]
    assert [option.field for option in named.options] == ["run", "count", "limit", "loud"]
    assert brief(named.options[1].text) == "How many. (default: 3)"
    assert brief(named.options[2].text) == "At most. Default: all."


@pytest.mark.parametrize("module", ["tcm.cli.app", "rich.console", "tyro", "torch", "tcm.methods", "numpy.random"])
def test_ctrl_c_while_modules_load_ends_in_one_line(module: str):
    code = f"""
import os, signal, sys
from tcm.__main__ import main

class Interrupting:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["train", "erm", "--help"]
main()
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "stopped; repeat the command to continue\n")


def test_inside_a_command_ctrl_c_is_an_exception_again():
    signal.signal(signal.SIGINT, end_at_once)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is end_at_once
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
    command = [sys.executable, "-m", "tcm", "mechanisms", "--form", "papper", "--out", "nowhere"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    found = subprocess.run(command, env=environment, capture_output=True, encoding=encoding)
    assert found.returncode == 2
    assert found.stderr.startswith("error: invalid choice 'papper' for argument '--form'. Expected one of ('paper',")
    assert found.stderr.count("\n") == 1


def config_of(command: str, *options: str) -> Any:
    """The config that a command would run with these options."""
    return parsed_call([*command.split(), "--out", "nowhere", *options]).keywords["config"]


SIZES = {
    "photographs": ([], False),
    "digits": (["--data.benchmark", "digits"], True),
    "small": (["--data.size", "40"], True),
    "small crops": (["--data.crop=32"], True),
    "crops of 64": (["--data.size", "72", "--data.crop", "64"], False),
}


@pytest.mark.parametrize(("data", "small"), SIZES.values(), ids=SIZES)
def test_the_defaults_fit_the_size_of_the_images(data: list[str], small: bool, tmp_path: Path):
    for name in ("tcm", "tcm-paper", "baseline"):
        assert config_of(f"train {name}", *data).method == METHODS[name].for_images(small)
    folders = [] if "--data.benchmark" in data else [str(tmp_path / "photos"), str(tmp_path / "cliparts")]
    for folder in folders:
        draw_domain(Path(folder), side=100)
    fitted = config_of("fit", *folders, *data)
    assert fitted.method == METHODS["tcm"].for_images(small)
    assert fitted.mechanisms.bank == bank_config("paper", small)
    assert config_of("mechanisms", *data).bank == bank_config("paper", small)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_stage_1_sets_what_the_mechanisms_start_from(form: Form):
    assert config_of("mechanisms", "--form", form).bank == bank_config(form, small=False)
    assert config_of("mechanisms", f"--form={form}", "--data.size", "32").bank == bank_config(form, small=True)


def test_an_explicit_option_counts_even_where_it_is_the_default_of_other_images():
    usual = METHODS["tcm-paper"].for_images(small=False).recipe.lr
    found = config_of("train tcm-paper", "--data.benchmark", "digits", "--method.recipe.lr", str(usual))
    assert found.method.recipe.lr == usual
    assert found.method.input == "bottleneck"
    assert config_of("mechanisms", "--bank.cycle", "3", "--form", "disentangled").bank.cycle == 3


def test_an_unknown_method_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "dannn", "--out", "x"]) == 2
    assert capsys.readouterr().err == 'error: there is no command "tcm train dannn"; did you mean "tcm train dann"?\n'


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_methods_and_options(shell: str, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    dashes = "" if shell == "fish" else "--"
    options = [f"{dashes}{name}" for name in ("quiet", "out", "data.source-dir", "method.trade-off")]
    words = ("mechanisms", "tcm-release", "check", *options)
    assert [word for word in words if word not in script] == []
    assert "--command." not in script  # an option of `tcm train dann` has no prefix
    (texts,) = (line for line in script.splitlines() if "COMPLETION_SPEC = " in line)
    assert re.search(r"\\+n", texts) is None  # a shell takes each line of a text for an option


@pytest.mark.skipif(sys.platform == "win32" or shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_options_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", "bash"]) == 0
    (tmp_path / "tcm.bash").write_text(capsys.readouterr().out)
    words = "COMP_WORDS=(tcm fit --ste) COMP_CWORD=2 COMP_LINE='tcm fit --ste' COMP_POINT=13"
    code = f"source {tmp_path}/tcm.bash; {words}; _tyro_tcm; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    assert subprocess.run(["bash", "-c", code], capture_output=True, text=True).stdout.splitlines() == ["--steps"]


@pytest.mark.parametrize("words", [["completion"], ["completion", "dos"], ["completion", "bash", "zsh"]])
def test_completion_of_another_shell_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "give bash, zsh or fish" in error
    assert error.count("\n") == 1


def test_a_warning_is_printed_once(capsys: pytest.CaptureFixture[str]):
    show = warning_printer()
    for text in ("Art has 2 images", "Art has 2 images", "Clipart has 3 images"):
        show(UserWarning(text))
    assert capsys.readouterr().err == "warning: Art has 2 images\nwarning: Clipart has 3 images\n"


@pytest.mark.parametrize(
    ("options", "small", "benchmark"),
    [
        (["digits", "--out", "x"], True, "digits"),
        (["--seeds", "1", "--quick", "Digits", "--out", "office-home"], True, "digits"),
        (["--out", "digits", "office-home"], False, "office-home"),
        (["ImageCLEF-DA", "--out", "x"], False, "imageclef-da"),
        (["office-home", "--out", "x", "--size=32"], True, "office-home"),
    ],
)
def test_the_defaults_of_a_suite_fit_its_benchmark_and_its_images(options: list[str], small: bool, benchmark: str):
    call = parsed_call(["bench", *options])
    assert dataclasses.asdict(call.keywords["method"]) == dataclasses.asdict(method_settings(small, benchmark))


def test_the_authors_recipe_gives_the_defaults_of_a_method_and_options_change_them():
    call = parsed_call(["train", "mcc", "--recipe", "authors", "--batch", "8", "--out", "x"])
    config = call.keywords["config"]
    assert config.method == METHODS["mcc"].authors()
    assert (config.steps, config.batch) == (METHODS["mcc"].authors_steps, 8)
    assert parsed_call(["train", "mcc", "--out", "x"]).keywords["config"].method == METHODS["mcc"]()


@pytest.mark.parametrize("name", ["fit", "train tcm", "mechanisms", "bench"])
def test_options_have_one_name_in_every_command_that_trains(name: str):
    known = {option.field for group in option_groups(name, command_function(name))[1] for option in group.options}
    same = {"steps", "k", "seed", "save-every", "batch", "log", "config", "print-config", "device", "out", "quiet"}
    backbone = {"backbone.name", "backbone.weights", "backbone.pretrained"}
    assert same | backbone <= known


def test_the_line_about_an_unknown_option_is_short(capfd: pytest.CaptureFixture[str]):
    assert main(["fit", "a", "b", "--stepz", "3"]) == 2
    line = capfd.readouterr().err
    assert "did you mean --steps?" in line
    assert len(line) < 120
