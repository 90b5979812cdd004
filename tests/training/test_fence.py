"""A process that was believed dead cannot write over its successor."""

import threading
from pathlib import Path

import pytest

from tcm.errors import InputError
from tcm.mechanisms.counterfactual_store import CounterfactualIndex, CounterfactualWriter
from tcm.training.fence import Fence, take_over
from tcm.training.files import lock
from tcm.training.run_folder import Run

CONFIG = {"seed": 0}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def test_each_process_takes_the_next_number(tmp_path: Path):
    first = Fence(tmp_path)
    first.require_held()
    second = Fence(tmp_path)
    assert [int(fence.holder.split()[0]) for fence in (first, second)] == [1, 2]
    assert (first.held, second.held) == (False, True)


def test_a_damaged_fence_can_be_taken(tmp_path: Path):
    first = Fence(tmp_path)
    first.file.write_bytes(b"\xff no number")
    assert Fence(tmp_path).held
    assert not first.held


def test_every_write_of_the_older_holder_is_refused(tmp_path: Path):
    older = Run(tmp_path / "run")
    older.start(CONFIG)
    older.append_metrics({"step": 1, "loss": 2.0})
    Fence(older.folder)  # by the successor
    before = contents(older.folder)
    writes = (
        lambda: older.save_state({"step": 2}),
        lambda: older.append_metrics({"step": 2, "loss": 1.0}),
        lambda: older.forget_metrics_after(0),
        lambda: older.save_model({}, {}),
        lambda: older.require_inputs(["a", "b"]),
        lambda: older.note_judgement({}),
        lambda: older.write_environment("cpu"),
        lambda: older.write(older.folder / "evaluation.json", b"{}"),
    )
    for write in writes:
        with pytest.raises(InputError, match=r"was taken over by process \d+ on .*; .* ends"):
            write()
    older.undo_start()
    assert contents(older.folder) == before


def test_the_older_writer_of_counterfactuals_is_refused(tmp_path: Path):
    index = CounterfactualIndex("run", "hash", "source", "target", "images", images=1, k=1, size=2, batch=1)
    writer = CounterfactualWriter(tmp_path / "source", index, Fence(tmp_path))
    writer.save()
    Fence(tmp_path)
    with pytest.raises(InputError, match="taken over"):
        writer.save()
    writer.close()


def test_taking_over_waits_for_the_lock_of_the_older_process(tmp_path: Path):
    older = Run(tmp_path / "run")
    older.start(CONFIG)
    later = threading.Timer(0.3, older.release)
    later.start()
    take_over(older.folder, seconds=20)
    with pytest.raises(InputError, match="taken over"):
        older.save_state({})
    newer = Run(older.folder)
    newer.start(CONFIG)
    newer.save_state({"step": 3})
    later.join()


def test_a_lock_that_is_never_released_is_one_clear_line(tmp_path: Path):
    older = Run(tmp_path / "run")
    older.start(CONFIG)
    with pytest.raises(InputError, match="still locked by an earlier process after 0 s"):
        take_over(older.folder, seconds=0.2)
    older.release()


def test_nothing_is_taken_over_in_a_new_folder(tmp_path: Path):
    take_over(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with lock(tmp_path):
        pass
    take_over(tmp_path)
