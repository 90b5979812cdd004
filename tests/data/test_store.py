import hashlib
import json
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from tcm.data.augment import View
from tcm.data.store import PIECE, ImageStore, digest, open_store, pack_arrays, stores_of_shape
from tcm.data.stream import RELEASE_EVERY, Stream
from tcm.errors import InputError


def packed_arrays(folder: Path, count: int = 3, seed: int = 0) -> ImageStore:
    images = np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
    labels = np.arange(count) % 3 - 1
    extra = {"factors": np.arange(count) / 2, "names": np.array(["a", "b"])}
    return pack_arrays("digits", images, labels, ("0", "1"), [f"{i}.png" for i in range(count)], folder, extra)


def test_arrays_are_packed_with_what_belongs_to_them(tmp_path: Path):
    store = packed_arrays(tmp_path / "digits")
    again = open_store(tmp_path / "digits")
    assert store.folder == again.folder == tmp_path / "digits"
    assert again.labels.tolist() == [-1, 0, 1]
    assert (again.name, again.size, again.classes, len(again)) == ("digits", 16, ("0", "1"), 3)
    assert torch.equal(store.images, again.images)
    assert again.extra()["factors"].tolist() == [0, 0.5, 1]
    assert again.extra()["names"].tolist() == ["a", "b"]


def test_arrays_packed_again_replace_the_old(tmp_path: Path):
    first = packed_arrays(tmp_path / "digits").images.clone()
    identity = (tmp_path / "digits").stat().st_ino
    assert torch.equal(packed_arrays(tmp_path / "digits").images, first)
    # An equal store stays, as another process may be opening it.
    assert (tmp_path / "digits").stat().st_ino == identity
    other = packed_arrays(tmp_path / "digits", seed=1).images
    assert not torch.equal(other, first)
    assert list(tmp_path.iterdir()) == [tmp_path / "digits"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(InputError, match=r"`data\.cache`"):
            packed_arrays(tmp_path / "arrays", count=50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_writing_to_the_images_does_not_reach_the_file(tmp_path: Path):
    store = packed_arrays(tmp_path / "digits")
    before = store.images.clone()
    store.images.zero_()
    assert torch.equal(open_store(store.folder).images, before)


def test_a_store_is_shown_in_one_line(tmp_path: Path):
    store = packed_arrays(tmp_path / "digits")
    assert repr(store) == f"ImageStore('digits', 3 images of 16 x 16, 2 classes, in {tmp_path / 'digits'})"


def resident(file: Path) -> int:
    """How much of the file is in the memory of this process, in kB."""
    parts = Path("/proc/self/smaps").read_text().split("VmFlags:")
    return sum(int(part.split("Rss:")[1].split()[0]) for part in parts if str(file) in part)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux says what is resident")
def test_images_that_were_read_are_not_resident_after_their_release(tmp_path: Path):
    store = packed_arrays(tmp_path / "digits", count=2000)
    before = store.images.clone()
    assert resident(store.folder / "images.npy") >= 1500
    store.release_pages()
    assert resident(store.folder / "images.npy") == 0
    assert torch.equal(store.images, before)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux says what is resident")
def test_training_steps_release_the_images_that_they_read(tmp_path: Path):
    stores = [packed_arrays(tmp_path / side, count=2000) for side in ("source", "target")]
    kinds = {"batch": 50, "seed": 0, "view": View(12, True, 0), "device": torch.device("cpu")}
    stream = Stream(stores[0], stores[1], **kinds)
    left: list[int] = []
    for step in range(2 * RELEASE_EVERY + 1):
        stream.batch(step)
        left.append(resident(stores[0].folder / "images.npy"))
    assert left[RELEASE_EVERY] == left[2 * RELEASE_EVERY] == 0
    assert left[2 * RELEASE_EVERY - 1] > 0


def test_stores_are_found_by_their_headers(tmp_path: Path):
    assert stores_of_shape(tmp_path / "none", 3, 16) == []
    packed_arrays(tmp_path / "a", count=3)
    packed_arrays(tmp_path / "b", count=5)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "images.npy").write_bytes(b"damaged")
    assert stores_of_shape(tmp_path, 5, 16) == [tmp_path / "b"]
    assert stores_of_shape(tmp_path, 5, 8) == stores_of_shape(tmp_path, 4, 16) == []


@pytest.mark.parametrize("count", [0, 1, PIECE, 2 * PIECE + 1])
def test_a_digest_is_that_of_the_whole_json_text(count: int):
    parts = [1, "ü", [f"{number}.png" for number in range(count)], (None,) * count, {"a": [1]}]
    stats = np.arange(2 * count).reshape(count, 2)
    text = json.dumps([*parts, stats.tolist()])
    assert digest(*parts, stats) == hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
