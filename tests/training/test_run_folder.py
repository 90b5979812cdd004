import json
import os
from pathlib import Path

import pytest
import torch

from tcm.errors import InputError
from tcm.training.run_folder import Run, environment, write_atomically


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    run.start({"seed": 0, "data": {"cache": None}})
    return run


def test_the_same_configuration_continues_and_another_is_shown(run: Run):
    del run._lock
    Run(run.folder).start({"seed": 0, "data": {"cache": None}})
    with pytest.raises(InputError, match="seed: 0 -> 1"):
        Run(run.folder).start({"seed": 1, "data": {"cache": None}})


def test_settings_that_do_not_change_the_result_may_change(run: Run):
    del run._lock
    Run(run.folder).start({"seed": 0, "data": {"cache": "elsewhere"}, "save_every": 7, "device": "cpu"})
    assert json.loads(run.config_file.read_text()) == {"seed": 0, "data": {"cache": None}}


def test_a_process_killed_at_its_first_write_leaves_a_usable_folder(tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".lock", ".config.json.tmp"):
        (folder / name).write_text("")
    Run(folder).start({"seed": 0})
    assert json.loads((folder / "config.json").read_text()) == {"seed": 0}


def test_images_may_change_until_a_step_was_saved(run: Run):
    for fingerprints in (["a", "b"], ["a", "c"]):
        run.require_images(fingerprints)
    run.save_state({"step": 3})
    run.require_images(["a", "c"])
    with pytest.raises(InputError, match="begun with other images"):
        run.require_images(["a", "b"])
    run.images_file.unlink()  # a run of an earlier version
    run.require_images(["a", "b"])


def test_two_processes_cannot_train_in_one_folder(run: Run):
    with pytest.raises(InputError, match="in use by another process"):
        Run(run.folder).start({"seed": 0, "data": {"cache": None}})


def test_a_failed_write_leaves_the_old_file(tmp_path: Path):
    file = tmp_path / "a" / "file"
    file.parent.mkdir()
    write_atomically(file, b"old")
    (file.parent / ".file.tmp").mkdir()  # the temporary file cannot be opened
    with pytest.raises((InputError, IsADirectoryError)):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"


def test_links_and_pipes_stay_what_they_are(tmp_path: Path):
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(file)
    write_atomically(link, b"through")
    assert link.is_symlink()
    assert file.read_bytes() == b"through"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"away")
    assert os.read(reader, 9) == b"away"
    os.close(reader)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]


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


def test_the_environment_tells_what_is_needed_to_repeat_a_run():
    found = environment("cpu")
    assert found["torch"] == torch.__version__.split("+")[0] or found["torch"] in torch.__version__
    assert {"command", "commit", "python", "tcm", "device", "started"} <= found.keys()
