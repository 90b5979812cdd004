import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import tcm
from tcm.data import cache as cache_module
from tcm.data import packing
from tcm.data.domains import Domain
from tcm.data.folders import read_domain
from tcm.data.images import BadImage, ReadImage, content_hash, decode, read_image, resized
from tcm.data.packing import open_or_pack
from tcm.data.store import StoreIndex, digest, open_store
from tcm.errors import InputError

MakeImages = Callable[..., Path]

PACK = """
import sys, time
from pathlib import Path
from tcm.data import packing, unfinished
from tcm.data.folders import read_domain
def slowly(path, read=packing.read_image):
    time.sleep(0.02)  # so that there is time for a kill
    return read(path)
packing.read_image = slowly
unfinished.SAVE_EVERY = 0.02
print(packing.open_or_pack(read_domain(Path(sys.argv[1])), int(sys.argv[3]), Path(sys.argv[2])).folder)
"""


@pytest.fixture
def folder(tmp_path: Path, make_images: MakeImages) -> Path:
    return make_images(tmp_path / "art", "mug/1.png", "mug/2 x.png", "bike/ü\n.png", "bike/2.png", size=(20, 12))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "deep"


@contextmanager
def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Counts how many files are only hashed, and how many are hashed and decoded."""
    counts = {"hashed": 0, "decoded": 0}
    originals = packing.content_hash, packing.read_image

    def content_hash(path: str) -> str:
        counts["hashed"] += 1
        return originals[0](path)

    def read_image(path: str) -> ReadImage:
        counts["decoded"] += 1
        return originals[1](path)

    with monkeypatch.context() as patch:
        patch.setattr(packing, "content_hash", content_hash)
        patch.setattr(packing, "read_image", read_image)
        yield counts


def stores_in(cache: Path) -> list[Path]:
    return [folder for folder in cache.iterdir() if folder.name not in ("notes", "unfinished")]


def unfinished_in(cache: Path) -> list[Path]:
    return [folder for folder in (cache / "unfinished").iterdir() if folder.is_dir()]


def content_of(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in store.iterdir()}


def test_a_packed_store_holds_the_images_and_their_index(folder: Path, cache: Path):
    domain = read_domain(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = open_or_pack(domain, 16, cache)
    assert len(store) == 4
    assert (store.name, store.size, store.classes) == ("art", 16, ("bike", "mug"))
    assert store.paths == list(domain.paths)
    assert store.labels.tolist() == [0, 0, 1, 1]
    assert store.labels.dtype == torch.int64
    assert store.images.dtype == torch.uint8
    assert store.images.shape == (4, 16, 16, 3)
    assert store.original_sizes == [(20, 12)] * 4
    assert len(set(store.hashes)) == 4
    assert store.extra() == {}
    for number, path in enumerate(store.paths):
        assert np.array_equal(store.images[number].numpy(), resized(decode(folder / path), 16))


def test_a_store_opens_by_its_folder_alone(folder: Path, cache: Path):
    packed = open_or_pack(read_domain(folder), 16, cache)
    opened = open_store(packed.folder)
    assert torch.equal(opened.images, packed.images)
    assert torch.equal(opened.labels, packed.labels)
    assert (opened.paths, opened.classes, opened.name) == (packed.paths, packed.classes, packed.name)
    # It is a plain NumPy file, which others can read too.
    assert np.array_equal(np.load(packed.folder / "images.npy"), packed.images.numpy())


def test_a_second_run_reads_no_image(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    first = open_or_pack(read_domain(folder), 16, cache)
    with counted_reads(monkeypatch) as counts:
        assert open_or_pack(read_domain(folder), 16, cache).folder == first.folder
    assert counts == {"hashed": 0, "decoded": 0}


def test_a_touched_file_is_hashed_and_the_store_found(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    first = open_or_pack(read_domain(folder), 16, cache)
    os.utime(folder / "mug/1.png", (1, 1))
    with counted_reads(monkeypatch) as counts:
        assert open_or_pack(read_domain(folder), 16, cache).folder == first.folder
        assert counts == {"hashed": 1 + 4, "decoded": 0}  # one is looked for in the store before all are
        open_or_pack(read_domain(folder), 16, cache)
    assert counts == {"hashed": 1 + 4, "decoded": 0}


def test_a_moved_data_set_finds_its_store(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    first = open_or_pack(read_domain(folder), 16, cache)
    moved = folder.rename(folder.with_name("moved"))
    with counted_reads(monkeypatch) as counts:
        store = open_or_pack(read_domain(moved), 16, cache)
    assert counts["decoded"] == 0
    assert store.folder == first.folder
    assert store.name == "moved"


def test_new_images_are_read_once(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    with counted_reads(monkeypatch) as counts:
        open_or_pack(read_domain(folder), 16, cache)
    assert counts == {"hashed": 0, "decoded": 4}


def test_another_domain_with_the_same_names_is_packed_too(
    folder: Path, cache: Path, make_images: MakeImages, monkeypatch: pytest.MonkeyPatch
):
    first = open_or_pack(read_domain(folder), 16, cache)
    other = make_images(folder.with_name("clipart"), *first.paths, size=(20, 12), seed=1)
    with counted_reads(monkeypatch) as counts:
        assert open_or_pack(read_domain(other), 16, cache).folder != first.folder
    assert counts == {"hashed": 4, "decoded": 4}  # few enough that all are looked for


def test_changed_content_or_settings_are_packed_anew(folder: Path, cache: Path):
    first = open_or_pack(read_domain(folder), 16, cache)
    assert open_or_pack(read_domain(folder), 8, cache).images.shape == (4, 8, 8, 3)
    Image.new("RGB", (20, 12), "red").save(folder / "mug/1.png")
    changed = open_or_pack(read_domain(folder), 16, cache)
    assert changed.folder != first.folder
    assert changed.images[changed.paths.index("mug/1.png")][0, 0].tolist() == [255, 0, 0]
    (folder / "mug").rename(folder / "cup")
    assert open_or_pack(read_domain(folder), 16, cache).classes == ("bike", "cup")
    assert len(stores_in(cache)) == 4


def test_labels_follow_the_classes_of_the_domain(folder: Path, cache: Path):
    domain = read_domain(folder)
    first = open_or_pack(domain, 16, cache)
    wider = replace(domain, classes=("apple", "bike", "mug"), labels=tuple(label + 1 for label in domain.labels))
    store = open_or_pack(wider, 16, cache)
    assert store.folder == first.folder
    assert store.classes == ("apple", "bike", "mug")
    assert store.labels.tolist() == [1, 1, 2, 2]
    unknown = open_or_pack(replace(domain, labels=(-1,) * 4), 16, cache)
    assert unknown.labels.tolist() == [-1] * 4


@pytest.fixture
def spoilt(folder: Path) -> Path:
    (folder / "mug" / "0 empty.png").write_bytes(b"")
    whole = (folder / "mug" / "1.png").read_bytes()
    (folder / "mug" / "9 cut.png").write_bytes(whole[: len(whole) // 2])
    return folder


def test_bad_images_stop(spoilt: Path, cache: Path):
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            open_or_pack(read_domain(spoilt), 16, cache)
        text = str(caught.value)
        assert "\n" not in text
        for part in ("2 of the 6", str(spoilt / "mug/0 empty.png"), "empty (0 bytes)", "tcm data check"):
            assert part in text
        assert "`data.on_bad_image=skip`" in text


@pytest.mark.parametrize("stopped_before", [False, True])
def test_bad_images_are_skipped_with_a_warning(spoilt: Path, cache: Path, stopped_before: bool):
    if stopped_before:
        with pytest.raises(InputError):
            open_or_pack(read_domain(spoilt), 16, cache)
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"2 of the 6 .* skipped.*0 empty\.png"):
            store = open_or_pack(read_domain(spoilt), 16, cache, on_bad_image="skip")
        assert len(store) == len(store.images) == len(store.labels) == len(store.hashes) == 4
        assert [path for path, _ in store.skipped] == ["mug/0 empty.png", "mug/9 cut.png"]
        number = store.paths.index("mug/1.png")
        assert np.array_equal(store.images[number].numpy(), resized(decode(spoilt / "mug/1.png"), 16))


def test_a_file_that_vanished_is_a_bad_image_until_it_is_back(folder: Path, cache: Path):
    domain = read_domain(folder)
    away = (folder / "mug/1.png").rename(folder / "mug/away")
    with pytest.raises(InputError, match="No such file"):
        open_or_pack(domain, 16, cache)
    away.rename(folder / "mug/1.png")
    assert len(open_or_pack(domain, 16, cache)) == 4


def test_a_file_that_was_unreadable_for_a_while_is_packed_later(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    def failing(path: str) -> ReadImage:
        pixels, content = read_image(path)
        return ReadImage(BadImage("Input/output error") if Path(path).name == "1.png" else pixels, content)

    with monkeypatch.context() as patch:
        patch.setattr(packing, "read_image", failing)
        with pytest.raises(InputError, match="Input/output error"):
            open_or_pack(read_domain(folder), 16, cache)
    assert len(open_or_pack(read_domain(folder), 16, cache)) == 4
    assert len(stores_in(cache)) == 1


def test_nothing_readable_is_an_error_even_when_skipping(tmp_path: Path, cache: Path):
    (tmp_path / "art" / "mug").mkdir(parents=True)
    (tmp_path / "art" / "mug" / "1.png").write_bytes(b"")
    with pytest.raises(InputError, match="1 of the 1"):
        open_or_pack(read_domain(tmp_path / "art"), 16, cache, on_bad_image="skip")
    assert stores_in(cache) == []


@pytest.mark.parametrize("damage", ["short", "long", "header", "no index", "index", "no images", "old format"])
def test_a_damaged_store_is_packed_again(folder: Path, cache: Path, damage: str):
    first = open_or_pack(read_domain(folder), 16, cache)
    pixels = first.images.clone()
    images, index = first.folder / "images.npy", first.folder / "index.json"
    content = images.read_bytes()
    {
        "short": lambda: os.truncate(images, len(content) - 1),
        "long": lambda: images.write_bytes(content + b"x"),
        "header": lambda: images.write_bytes(b"garbage!" + content[8:]),
        "no index": index.unlink,
        "index": lambda: index.write_text(index.read_text()[:50]),
        "no images": images.unlink,
        "old format": lambda: index.write_text(index.read_text().replace('"format": 2', '"format": 1')),
    }[damage]()
    with pytest.raises(InputError, match="not a complete image store"):
        open_store(first.folder)
    again = open_or_pack(read_domain(folder), 16, cache)
    assert again.folder == first.folder
    assert torch.equal(again.images, pixels)
    assert stores_in(cache) == [first.folder]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_pack_continues_where_it_stopped(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
):
    def interrupted(*_: object) -> None:
        raise interruption

    with monkeypatch.context() as patch:
        patch.setattr(StoreIndex, "write", interrupted)
        with pytest.raises(interruption):
            open_or_pack(read_domain(folder), 16, cache)
    assert stores_in(cache) == []
    with counted_reads(monkeypatch) as counts:
        store = open_or_pack(read_domain(folder), 16, cache)
    assert counts == {"hashed": 0, "decoded": 0}
    assert unfinished_in(cache) == []
    assert content_of(store.folder) == content_of(open_or_pack(read_domain(folder), 16, cache / "other").folder)


def packing_process(folder: Path, cache: Path, size: int, **options: Any) -> "subprocess.Popen[str]":
    source = str(Path(tcm.__path__[0]).parent)
    environment = os.environ | {"PYTHONPATH": source}
    arguments = [sys.executable, "-c", PACK, str(folder), str(cache), str(size)]
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True, **options)


def interrupted_pack(folder: Path, cache: Path, patch: pytest.MonkeyPatch) -> Path:
    """The unfinished folder of a pack that was interrupted after the last image."""
    with patch.context() as broken:
        broken.setattr(StoreIndex, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            open_or_pack(read_domain(folder), 16, cache)
    (left,) = unfinished_in(cache)
    return left


@pytest.fixture
def many(tmp_path: Path, make_images: MakeImages) -> Path:
    return make_images(tmp_path / "many", *(f"{number % 2}/{number:03}.png" for number in range(200)), size=(64, 64))


@pytest.fixture
def many_jpegs(many: Path) -> Path:
    """The same as JPEG files, of which some have to be turned, are grey or cannot be read."""
    for number, file in enumerate(sorted(many.rglob("*.png"))):
        exif, image = Image.Exif(), Image.open(file)
        exif[0x0112] = 6
        kind = {1: {"exif": exif}, 2: {"progressive": True}}.get(number % 5, {})
        (image.convert("L") if number % 7 == 0 else image).save(file.with_suffix(".jpg"), **kind)
        file.unlink()
        if number % 40 == 39:
            os.truncate(file.with_suffix(".jpg"), 1000)
    return many


def begin_and_kill(folder: Path, cache: Path, size: int) -> int:
    """Kills a process that packs the folder, once it has saved some images; how many it had saved."""
    process = packing_process(folder, cache, size)
    try:
        while not any(file.stat().st_size for file in cache.glob("unfinished/*/journal.jsonl")):
            assert process.poll() is None
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    (journal,) = cache.glob("unfinished/*/journal.jsonl")
    return journal.read_text().count("\n")


def test_a_killed_pack_continues_and_ends_with_the_same_bytes(many: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    saved = begin_and_kill(many, cache, 500)
    assert 0 < saved < 200
    assert stores_in(cache) == []
    with counted_reads(monkeypatch) as counts:
        store = open_or_pack(read_domain(many), 500, cache, quiet=True)
    assert counts == {"hashed": 0, "decoded": 200 - saved}
    assert unfinished_in(cache) == []
    whole = open_or_pack(read_domain(many), 500, cache / "other", quiet=True)
    assert store.folder.name == whole.folder.name
    assert content_of(store.folder) == content_of(whole.folder)


@pytest.mark.parametrize("size", [64, 100])
def test_a_killed_pack_of_jpeg_files_ends_with_the_same_bytes(many_jpegs: Path, cache: Path, size: int):
    saved = begin_and_kill(many_jpegs, cache, size)
    assert 0 < saved < 200
    domain = read_domain(many_jpegs)
    with pytest.warns(UserWarning, match="5 of the 200"):
        store = open_or_pack(domain, size, cache, on_bad_image="skip", quiet=True)
    with pytest.warns(UserWarning, match="image file is truncated"):
        whole = open_or_pack(domain, size, cache / "other", on_bad_image="skip", quiet=True)
    assert store.folder.name == whole.folder.name
    assert content_of(store.folder) == content_of(whole.folder)
    assert json.loads(content_of(store.folder)["index.json"])["format"] == (1 if size == 64 else 2)
    for number, path in enumerate(store.paths):
        pixels = np.asarray(ImageOps.exif_transpose(Image.open(many_jpegs / path)).convert("RGB"))
        assert np.array_equal(store.images[number].numpy(), resized(pixels, size))


@pytest.mark.parametrize(("size", "expected"), [(12, 1), (16, 2)])
def test_only_stores_of_resized_images_have_a_new_format(
    tmp_path: Path, cache: Path, make_images: MakeImages, size: int, expected: int, monkeypatch: pytest.MonkeyPatch
):
    domain = read_domain(make_images(tmp_path / "art", "a/1.png", "b/2.png", size=(12, 12)))
    contents = [content_hash(domain.root / path) for path in domain.paths]
    store = open_or_pack(domain, size, cache)
    assert store.folder.name == digest(expected, size, domain.paths, domain.class_names, contents)
    assert store.fingerprint == digest(expected, size, domain.paths, contents)
    os.utime(domain.root / domain.paths[0], (1, 1))
    with counted_reads(monkeypatch) as counts:
        assert open_or_pack(domain, size, cache).folder == store.folder
    assert counts["decoded"] == 0


def change(folder: Path) -> None:
    Image.new("RGB", (64, 64), "red").save(folder / "0/002.png")


def remove(folder: Path) -> None:
    (folder / "0/002.png").unlink()


def add(folder: Path) -> None:
    Image.new("RGB", (64, 64), "red").save(folder / "0/001.png")


@pytest.mark.parametrize("edit", [change, remove, add])
def test_files_that_change_between_two_attempts_are_packed_as_they_are(
    many: Path, cache: Path, edit: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
):
    interrupted_pack(many, cache, monkeypatch)
    edit(many)
    domain = read_domain(many)
    with counted_reads(monkeypatch) as counts:
        store = open_or_pack(domain, 16, cache, quiet=True)
    assert counts["decoded"] == len(domain.paths) - 1  # only the first file is before the change
    assert store.paths == list(domain.paths)
    assert content_of(store.folder) == content_of(open_or_pack(domain, 16, cache / "other", quiet=True).folder)


@pytest.mark.parametrize(
    ("lost", "decoded"),
    [("half a line", 1), ("the end of a line", 1), ("a line of garbage", 1), ("half an image", 1), ("images", 4)],
)
def test_what_is_not_whole_is_packed_again(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, lost: str, decoded: int
):
    left = interrupted_pack(folder, cache, monkeypatch)
    journal, images = left / "journal.jsonl", left / "store" / "images.npy"
    lines = journal.read_text().splitlines(keepends=True)
    {
        "half a line": lambda: journal.write_text("".join(lines[:-1]) + lines[-1][:20]),
        "the end of a line": lambda: journal.write_text("".join(lines).removesuffix("\n")),
        "a line of garbage": lambda: journal.write_text("".join(lines[:-1]) + "\0\0\0\n"),
        "half an image": lambda: os.truncate(images, images.stat().st_size - 100),
        "images": images.unlink,
    }[lost]()
    with counted_reads(monkeypatch) as counts:
        store = open_or_pack(read_domain(folder), 16, cache)
    assert counts == {"hashed": 0, "decoded": decoded}
    assert content_of(store.folder) == content_of(open_or_pack(read_domain(folder), 16, cache / "other").folder)


def test_bad_images_are_remembered_and_looked_at_again(spoilt: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    interrupted_pack(spoilt, cache, monkeypatch)
    with counted_reads(monkeypatch) as counts, pytest.warns(UserWarning, match="2 of the 6"):
        store = open_or_pack(read_domain(spoilt), 16, cache, on_bad_image="skip")
    assert counts["decoded"] == 2  # the two that could not be read
    assert [path for path, _ in store.skipped] == ["mug/0 empty.png", "mug/9 cut.png"]
    with pytest.warns(UserWarning, match="2 of the 6"):
        whole = open_or_pack(read_domain(spoilt), 16, cache / "other", on_bad_image="skip")
    assert content_of(store.folder) == content_of(whole.folder)


def test_unfinished_work_is_kept_for_some_weeks(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    left = interrupted_pack(folder, cache, monkeypatch)
    open_or_pack(read_domain(folder), 8, cache)
    assert unfinished_in(cache) == [left]
    for file in [left, *left.iterdir()]:
        os.utime(file, (1, 1))
    open_or_pack(read_domain(folder), 12, cache)
    assert unfinished_in(cache) == []


def test_another_process_waits_for_the_one_that_packs(many: Path, cache: Path):
    first = packing_process(many, cache, 500)
    while not any(cache.glob("unfinished/*/journal.jsonl")):
        assert first.poll() is None
        time.sleep(0.002)
    first.send_signal(signal.SIGSTOP)
    second = packing_process(many, cache, 500, stderr=subprocess.PIPE)
    try:
        assert second.stderr is not None
        line = second.stderr.readline()
        assert "Another process is packing many; waiting for it" in line
        assert str(cache) in line
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    printed, _ = second.communicate()
    assert second.returncode == 0
    assert stores_in(cache) == [Path(printed.strip())]


def test_too_little_room_is_a_warning_before_the_work(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    full = shutil._ntuple_diskusage(10**6, 10**6, 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.warns(UserWarning, match=r"take 3\.1 kB, but .* has 1\.0 kB left; free some space or set `data.cache`"):
        open_or_pack(read_domain(folder), 16, cache)


def test_two_processes_at_once_both_end_well(folder: Path, cache: Path):
    processes = [packing_process(folder, cache, 16) for _ in range(2)]
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert printed[0] == printed[1]
    assert stores_in(cache) == [Path(printed[0].strip())]


def test_windows_which_opens_no_folder_and_has_no_harmless_kill(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    opened = os.open

    def open_file(path: Path, flags: int, mode: int = 0o777) -> int:
        assert not Path(path).is_dir()
        assert flags & os.O_RDWR or Path(path).suffix == ".png"  # images are only read
        return opened(path, flags, mode)

    abandoned = cache / f".packing-{platform.node()}-{2**22 + 1}-0123"  # no such process
    abandoned.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "ON_WINDOWS", True)
        patch.setattr(os, "open", open_file)
        patch.delattr(os, "kill")
        assert len(open_or_pack(read_domain(folder), 16, cache)) == 4
    assert abandoned.is_dir()
    open_or_pack(read_domain(folder), 8, cache)
    assert not abandoned.exists()


def test_a_cache_that_cannot_be_written(folder: Path, tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError) as caught:
        open_or_pack(read_domain(folder), 16, tmp_path / "file" / "cache")
    assert str(tmp_path / "file" / "cache") in str(caught.value)
    assert "`data.cache`" in str(caught.value)


def test_a_write_that_fails(folder: Path, cache: Path):
    # A limit on the size of files: the write fails half way, as on a full disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(InputError) as caught:
            open_or_pack(read_domain(folder), 64, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for part in (str(cache), "File too large", "`data.cache`"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert stores_in(cache) == []
    assert len(open_or_pack(read_domain(folder), 64, cache)) == 4


def test_many_images_keep_their_order(tmp_path: Path, cache: Path, make_images: MakeImages):
    folder = make_images(tmp_path / "many", *(f"{number % 3}/{number}.png" for number in range(120)))
    domain: Domain = read_domain(folder)
    store = open_or_pack(domain, 8, cache, quiet=True)
    for number in range(0, 120, 7):
        assert np.array_equal(store.images[number].numpy(), resized(decode(folder / domain.paths[number]), 8))


def test_the_fingerprint_is_that_of_pixels_and_order(folder: Path, cache: Path):
    store = open_or_pack(read_domain(folder), 8, cache, quiet=True)
    assert open_or_pack(read_domain(folder), 8, cache, quiet=True).fingerprint == store.fingerprint
    assert replace(store, name="other", labels=store.labels * 0).fingerprint == store.fingerprint
    assert open_or_pack(read_domain(folder), 16, cache, quiet=True).fingerprint != store.fingerprint
    Image.new("RGB", (20, 12), "red").save(folder / "mug" / "1.png")
    assert open_or_pack(read_domain(folder), 8, cache, quiet=True).fingerprint != store.fingerprint
