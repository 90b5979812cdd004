import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.mistakes import refusal

from tcm.cli.app import COMMANDS, main, parsed_call, train_example
from tcm.cli.yaml_settings import read_settings
from tcm.config import leaves, to_json
from tcm.methods import METHODS

EXAMPLES = {name: command.example for name, command in COMMANDS.items() if name != "train"}
EXAMPLES |= {f"train {name}": train_example(name) for name in METHODS}

Print = Callable[[list[str]], str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Print:
    """What a command prints with --print-config."""

    def run(words: list[str]) -> str:
        assert main([*words, "--print-config"]) == 0
        return capsys.readouterr().out

    return run


def settings(call: functools.partial[int]) -> dict[str, Any]:
    return {name: to_json(value) for name, value in call.keywords.items()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_settings_of_every_command_go_through_a_file(name: str, tmp_path: Path, printed: Print):
    words, file = EXAMPLES[name].split()[1:], tmp_path / "settings.yaml"
    file.write_text(printed(words))
    from_file = parsed_call([*name.split(), "--config", str(file)])
    assert settings(from_file) == settings(parsed_call(words))
    # Every setting is shown; those with their default are comments.
    shown = file.read_text().replace("# ", "").splitlines()
    names = [line.partition(":")[0].strip() for line in shown]
    assert {"quiet", *(read_settings(file) or {})} <= set(names)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if "train" not in name or "dann" in name])
def test_the_settings_of_every_command_are_shown_without_what_is_required(name: str, tmp_path: Path, printed: Print):
    file = tmp_path / "settings.yaml"
    file.write_text(printed(name.split()))
    assert [value for value in leaves(read_settings(file)).values() if value is not None] == []


def test_every_value_survives_and_options_go_before_the_file(tmp_path: Path, printed: Print):
    odd = str(tmp_path / "a b: ü\n☃")
    options = f"--data.benchmark digits --method.recipe.lr 1e-07 --compile off --backbone.no-pretrained --out {odd}"
    words = ["train", "tcm-paper", *options.split(" ", 8)[:8], odd, "--method.head.vae.encoder", "8", "4"]
    file = tmp_path / "tcm.yaml"
    file.write_text(printed(words))
    assert settings(parsed_call(["train", "tcm-paper", "--config", str(file)])) == settings(parsed_call(words))
    changed = parsed_call(["train", "tcm-paper", f"--config={file}", "--steps", "7", "--backbone.pretrained"]).keywords
    assert (changed["config"].steps, changed["config"].backbone.pretrained) == (7, True)
    assert changed["config"].method.head.vae.encoder == (8, 4)
    assert changed["out"] == Path(odd)


def test_defaults_follow_the_settings_of_the_file(tmp_path: Path):
    file = tmp_path / "small.yaml"
    file.write_text("data:\n  benchmark: digits\nform: disentangled\nout: x\nbank:\n")
    call = parsed_call(["mechanisms", "--config", str(file)])
    same = parsed_call(["mechanisms", "--data.benchmark", "digits", "--form", "disentangled", "--out", "x"])
    assert settings(call) == settings(same)


def test_arguments_may_come_from_the_file_and_from_the_command(tmp_path: Path):
    file = tmp_path / "predict.yaml"
    file.write_text("run: runs/a\nimages: new\nprobabilities: true\n")
    call = parsed_call(["predict", "--config", str(file)]).keywords
    assert (call["run"], call["images"], call["probabilities"]) == (Path("runs/a"), Path("new"), True)
    other = parsed_call(["predict", "runs/b", "--no-probabilities", "--config", str(file)]).keywords
    assert (other["run"], other["images"], other["probabilities"]) == (Path("runs/b"), Path("new"), False)
    file.write_text("runs: [runs/a, runs/b]\n")
    assert parsed_call(["compare", "--config", str(file)]).keywords["runs"] == (Path("runs/a"), Path("runs/b"))


def test_words_and_numbers_are_those_of_yaml_1_2(tmp_path: Path):
    file = tmp_path / "a.yaml"
    file.write_text("a: off\nb: 1e-3\nc: 2024-01-01\nd: true\ne: 10\nf: -.5\ng: no\nh: .inf\n")
    assert list(read_settings(file).values()) == ["off", 0.001, "2024-01-01", True, 10, -0.5, "no", float("inf")]


def test_hyphens_and_files_of_other_encodings_are_read(tmp_path: Path):
    file = tmp_path / "a.yaml"
    file.write_bytes("data:\n  source-dir: büro\nsave-every: 3\nout: x\n".encode("utf-16"))  # as PowerShell writes it
    config = parsed_call(["train", "erm", "--config", str(file)]).keywords["config"]
    assert (config.data.source_dir, config.save_every) == (Path("büro"), 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stepz: 3", ["settings.yaml: stepz is not a setting", "did you mean steps?"]),
        ("data:\n  cropp: 3", ["data.cropp is not a setting", "did you mean data.crop?"]),
        ("lr: 3", ["lr is not a setting"]),
        ("method:\n  recipe:\n    lr: fast", ["method.recipe.lr is 'fast'", "give float"]),
        ("steps: 1.5", ["steps is 1.5", "give int or None"]),
        ("device: gpu", ["device is 'gpu'", "'cpu' or 'cuda'"]),
        ("out: 3", ["out is 3", "give Path"]),
        ("data: 3", ["data is 3", "DataConfig"]),
        ("quiet: 1", ["quiet is 1", "give bool"]),
        ("steps: [1", ["settings.yaml is not readable YAML", "line 1"]),
        ("steps: 1\nsteps: 2", ["steps is there twice"]),
        ("- steps", ["settings.yaml holds no settings"]),
        ("a: \x00", ["settings.yaml is not readable YAML"]),
        ("a: !!python/object:os.system x", ["settings.yaml is not readable YAML"]),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_with_its_name(
    text: str, said: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    line = refusal(capfd, ["train", "erm", "--out", str(tmp_path / "out"), "--config", str(file)])
    assert [part for part in said if part not in line] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [["--config"], ["--config", "nowhere.yaml"], ["--config", "."]])
def test_a_missing_file_is_one_line(words: list[str], capfd: pytest.CaptureFixture[str]):
    assert "--config" in refusal(capfd, ["evaluate", "run", *words])


def test_what_is_required_is_still_required(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    file = tmp_path / "empty.yaml"
    file.write_text("")
    assert "--out" in refusal(capfd, ["train", "erm", "--config", str(file)])


@pytest.mark.parametrize("name", ["evaluate", "train dann", "bench"])
def test_the_help_explains_both_options(name: str, capsys: pytest.CaptureFixture[str]):
    assert main([*name.split(), "--help-all"]) == 0
    out = capsys.readouterr().out
    assert "--config FILE" in out
    assert "--print-config" in out
