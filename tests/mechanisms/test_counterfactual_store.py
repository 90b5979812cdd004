"""The folder in which the two stages meet: whole or said not to be, and never taken for another's."""

import dataclasses
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tcm.data.store import ImageStore, pack_arrays
from tcm.errors import InputError
from tcm.mechanisms.counterfactual_store import CounterfactualIndex, CounterfactualWriter, open_counterfactuals

COUNT, K, SIDE = 5, 3, 8


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return packed(tmp_path / "store")


def packed(folder: Path, seed: int = 0, count: int = COUNT, side: int = SIDE) -> ImageStore:
    images = np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return pack_arrays("photos", images, [0] * count, ["a", "b"], [f"{i}.png" for i in range(count)], folder)


def index_of(store: ImageStore, **changed: object) -> CounterfactualIndex:
    index = CounterfactualIndex(
        "runs/m", "hash", "photos", "drawings", store.fingerprint, len(store), K, store.size, batch=2
    )
    return dataclasses.replace(index, **changed)


def rows(first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(9)
    images = random.integers(0, 256, (COUNT, K, SIDE, SIDE, 3), dtype=np.uint8)
    losses = random.random((COUNT, K)).astype(np.float32)
    return images[first:last], losses.argmin(axis=1)[first:last], losses[first:last]


def fill(folder: Path, store: ImageStore, *, until: int = COUNT) -> CounterfactualWriter:
    writer = CounterfactualWriter(folder, index_of(store))
    for first in range(writer.done, until, 2):
        writer.append(first, *rows(first, min(first + 2, until)))
    if until == COUNT:
        writer.finish()
    else:
        writer.save()
    writer.close()
    return writer


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_an_image_and_its_counterfactuals_have_one_number(store: ImageStore, tmp_path: Path):
    fill(tmp_path / "out", store)
    found = open_counterfactuals(tmp_path / "out", store, K)
    images, winner, losses = rows(0, COUNT)
    assert (found.images.numpy() == images).all()
    assert (found.winner.numpy() == winner).all()
    assert (found.losses.numpy() == losses).all()
    assert np.load(tmp_path / "out" / "images.npy", mmap_mode="r").shape == (COUNT, K, SIDE, SIDE, 3)


def test_what_was_interrupted_goes_on_to_the_same_bytes(store: ImageStore, tmp_path: Path):
    fill(tmp_path / "whole", store)
    half = CounterfactualWriter(tmp_path / "out", index_of(store))
    half.append(0, *rows(0, 2))
    half.save()
    half.append(2, *rows(2, 4))  # written, but not saved: these rows come again
    half.close()
    assert fill(tmp_path / "out", store).done == COUNT
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert CounterfactualWriter(tmp_path / "out", index_of(store)).finished


def test_a_killed_process_may_leave_both_notes(store: ImageStore, tmp_path: Path):
    fill(tmp_path / "out", store)
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "progress.json").write_text(json.dumps({**dataclasses.asdict(index_of(store)), "done": 5}))
    open_counterfactuals(tmp_path / "out", store)
    assert CounterfactualWriter(tmp_path / "out", index_of(store)).finished
    assert contents(tmp_path / "out") == before


def test_a_process_killed_at_its_first_note_leaves_a_usable_folder(store: ImageStore, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".progress.json.tmp").write_text("{")
    assert fill(tmp_path / "out", store).done == COUNT


def test_a_lost_file_is_made_again(store: ImageStore, tmp_path: Path):
    fill(tmp_path / "whole", store)
    fill(tmp_path / "out", store, until=2)
    (tmp_path / "out" / "losses.npy").unlink()
    fill(tmp_path / "out", store)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_nothing_follows_rows_that_could_not_be_written(store: ImageStore, tmp_path: Path):
    writer = CounterfactualWriter(tmp_path / "out", index_of(store))
    with pytest.raises(AssertionError, match="in order"):
        writer.append(2, *rows(2, 4))
    writer.close()


def test_missing_unfinished_and_damaged_folders_are_refused(store: ImageStore, tmp_path: Path):
    with pytest.raises(InputError, match="holds no transported images; make them with tcm transport"):
        open_counterfactuals(tmp_path / "gone", store)
    fill(tmp_path / "half", store, until=2)
    with pytest.raises(InputError, match="is not finished: 2 of 5 images are transported; repeat tcm transport runs/m"):
        open_counterfactuals(tmp_path / "half", store)
    fill(tmp_path / "cut", store)
    os.truncate(tmp_path / "cut" / "images.npy", 500)
    with pytest.raises(InputError, match=r"cut is damaged: .*; delete the folder"):
        open_counterfactuals(tmp_path / "cut", store)
    (tmp_path / "cut" / "index.json").write_text("{")
    with pytest.raises(InputError, match=r"index\.json is damaged"):
        open_counterfactuals(tmp_path / "cut", store)


def test_foreign_folders_are_refused_by_readers(store: ImageStore, tmp_path: Path):
    fill(tmp_path / "out", store)
    others = {
        "holds images of side 8 instead of 16": packed(tmp_path / "large", side=16),
        "holds the counterfactuals of 5 images instead of 4": packed(tmp_path / "fewer", count=4),
        "was made from other images, or from these under other paths": packed(tmp_path / "other", seed=1),
    }
    for found, other in others.items():
        with pytest.raises(InputError, match=f"out {found}; name mechanisms .* on the images of photos"):
            open_counterfactuals(tmp_path / "out", other)
    with pytest.raises(InputError, match="holds 3 counterfactuals of each image instead of 4"):
        open_counterfactuals(tmp_path / "out", store, k=4)
    with pytest.raises(InputError, match="was made by other mechanisms, those of runs/m; delete it and repeat"):
        open_counterfactuals(tmp_path / "out", store, mechanisms="other")
    open_counterfactuals(tmp_path / "out", store, K, "hash")


@pytest.mark.parametrize("until", [2, COUNT])
def test_foreign_folders_are_refused_by_writers(store: ImageStore, tmp_path: Path, until: int):
    fill(tmp_path / "out", store, until=until)
    before = contents(tmp_path / "out")
    with pytest.raises(InputError, match="was made by other mechanisms, those of runs/m; delete it or choose another"):
        CounterfactualWriter(tmp_path / "out", index_of(store, mechanisms="other"))
    with pytest.raises(InputError, match="holds 3 counterfactuals of each image instead of 4"):
        CounterfactualWriter(tmp_path / "out", index_of(store, k=4))
    assert contents(tmp_path / "out") == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "holiday.jpg").touch()
    with pytest.raises(InputError, match="mine is not empty and holds no transported images"):
        CounterfactualWriter(tmp_path / "mine", index_of(store))


def test_labels_play_no_part(store: ImageStore, tmp_path: Path):
    fill(tmp_path / "out", store)
    unlabelled = dataclasses.replace(store, labels=store.labels * 0 - 1, name="the same")
    assert open_counterfactuals(tmp_path / "out", unlabelled).index.domain == "photos"


def test_a_disk_that_is_too_small_is_found_out_before_the_work(store: ImageStore, tmp_path: Path):
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_counterfactual_store import fill, packed
from tcm.errors import InputError
try:
    fill(Path({str(tmp_path)!r}) / "out", packed(Path({str(tmp_path)!r}) / "store"))
except InputError as error:
    print(error)
"""

    def tiny_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = subprocess.run([sys.executable, "-c", code], preexec_fn=tiny_disk, capture_output=True, text=True)
    assert "out cannot hold the 3.0 kB of the transported images (File too large)" in done.stdout, done.stderr
    assert "free some space or choose another `out`" in done.stdout
    assert not (tmp_path / "out").exists()
