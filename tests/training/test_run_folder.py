import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tcm import __version__
from tcm.errors import InputError
from tcm.training.run_folder import FORMAT, Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    run.start({"seed": 0, "data": {"cache": None}})
    return run


def test_the_same_configuration_continues_and_another_is_shown(run: Run):
    run.release()
    Run(run.folder).start({"seed": 0, "data": {"cache": None}})
    with pytest.raises(InputError, match="seed: 0 -> 1"):
        Run(run.folder).start({"seed": 1, "data": {"cache": None}})


def test_settings_that_do_not_change_the_result_may_change(run: Run):
    run.release()
    Run(run.folder).start({"seed": 0, "data": {"cache": "elsewhere"}, "save_every": 7, "device": "cpu"})
    assert run.config() == {"seed": 0, "data": {"cache": None}}


def test_a_process_killed_at_its_first_write_leaves_a_usable_folder(tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".lock", ".config.json.tmp"):
        (folder / name).write_text("")
    Run(folder).start({"seed": 0})
    assert Run(folder).config() == {"seed": 0}


@pytest.mark.parametrize("new", [True, False])
def test_a_start_that_is_undone_leaves_nothing(tmp_path: Path, new: bool):
    run = Run(tmp_path / "run" if new else tmp_path)
    run.start({"seed": 0})
    run.require_inputs(["a", "b"])
    run.write_environment("cpu")
    run.undo_start()
    assert list(tmp_path.iterdir()) == []
    Run(run.folder).start({"seed": 1})


OTHER_WRITERS = [
    (None, "a version of tcm before 0.2"),
    ({"tcm": "9.1.0", "format": 9}, r"tcm 9\.1\.0 \(run format 9\)"),
    ("nonsense", "a version of tcm before 0.2"),
]


@pytest.mark.parametrize(("written_by", "writer"), OTHER_WRITERS)
def test_a_folder_of_another_version_is_refused(run: Run, written_by: object, writer: str):
    run.release()
    content = {"written_by": written_by, "seed": 0}
    run.config_file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    message = rf"run was written by {writer}, but this is tcm {__version__} .*; use that version or a new `out`$"
    for use in (run.config, lambda: Run(run.folder).start({"seed": 0})):
        with pytest.raises(InputError, match=message):
            use()


@pytest.mark.parametrize(("written_by", "writer"), OTHER_WRITERS)
def test_a_model_of_another_version_is_refused(run: Run, written_by: object, writer: str):
    about = {"classes": ["a"]} if written_by is None else {"classes": ["a"], "written_by": written_by}
    save_file({"w": torch.zeros(1)}, run.model_file, {"tcm": json.dumps(about)})
    for use in (run.load_model, run.about_model):
        with pytest.raises(InputError, match=rf"model\.safetensors was written by {writer}, but .* a new `out`$"):
            use()


def test_both_files_say_which_version_wrote_them(run: Run):
    run.save_model({"w": torch.zeros(1)}, {})
    assert json.loads(run.config_file.read_text())["written_by"] == {"tcm": __version__, "format": FORMAT}
    assert f'\\"tcm\\": \\"{__version__}\\"'.encode() in run.model_file.read_bytes()


def test_a_config_that_is_not_an_object_is_damaged(run: Run):
    run.config_file.write_text("[]")
    with pytest.raises(InputError, match=r"config\.json is damaged .*; restore it"):
        run.config()


def test_images_may_change_until_a_step_was_saved(run: Run):
    for fingerprints in (["a", "b"], ["a", "c"]):
        run.require_inputs(fingerprints)
    run.save_state({"step": 3})
    run.require_inputs(["a", "c"])
    with pytest.raises(InputError, match="started with other images"):
        run.require_inputs(["a", "b"])
    run.inputs_file.unlink()  # lost
    run.require_inputs(["a", "b"])


def test_two_processes_cannot_train_in_one_folder(run: Run):
    with pytest.raises(InputError, match="in use by another process"):
        Run(run.folder).start({"seed": 0, "data": {"cache": None}})


def test_a_failed_start_releases_the_lock(run: Run):
    run.release()
    second = Run(run.folder)
    with pytest.raises(InputError, match="seed: 0 -> 1"):
        second.start({"seed": 1, "data": {"cache": None}})
    Run(run.folder).start({"seed": 0, "data": {"cache": None}})
    assert second.folder == run.folder  # it is still in memory


def test_state_and_model_come_back(run: Run):
    assert run.load_state(torch.device("cpu")) is None
    run.save_state({"step": 3, "learner": {"w": torch.arange(4.0)}, "optimizers": {}})
    state = run.load_state(torch.device("cpu"))
    assert state is not None
    assert state["step"] == 3
    assert torch.equal(state["learner"]["w"], torch.arange(4.0))
    assert not run.finished
    run.save_model({"w": torch.arange(6.0).reshape(2, 3).T}, {"classes": ["a"]})
    tensors, about = run.load_model()
    assert run.finished
    assert about == {"classes": ["a"]}
    assert torch.equal(tensors["w"], torch.arange(6.0).reshape(2, 3).T)


def test_a_metrics_line_cut_off_by_a_crash_is_dropped(run: Run):
    for step in (1, 2, 3):
        run.append_metrics({"step": step})
    with run.metrics_file.open("a") as file:
        file.write('{"step": 4, "lo')
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    run.forget_metrics_after(2)
    run.append_metrics({"step": 3})
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]


def test_another_number_of_steps_says_why_the_run_cannot_be_extended(tmp_path: Path):
    run = Run(tmp_path / "run")
    run.start({"steps": 600, "evaluate_every": 60})
    run.release()
    with pytest.raises(InputError, match=r"holds a run of 600 steps: .*cannot be extended; choose another `out`"):
        Run(run.folder).start({"steps": 1200, "evaluate_every": 120})


def test_the_backbone_of_stage_1_only_measures_and_may_change(tmp_path: Path):
    for kind, changeable in (("mechanisms", True), ("", False)):
        run = Run(tmp_path / f"run{kind}")
        run.start({"kind": kind, "backbone": {"name": "small"}})
        run.release()
        if changeable:
            Run(run.folder).start({"kind": kind, "backbone": {"name": "resnet18"}})
        else:
            with pytest.raises(InputError, match=r"backbone\.name"):
                Run(run.folder).start({"kind": kind, "backbone": {"name": "resnet18"}})
