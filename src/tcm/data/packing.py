"""A domain's image files to a store in the cache: each image is decoded once.

A store in the cache is named by a hash of its content: paths, classes, the bytes of the files, and the size.
"""

import os
import shutil
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tcm.data.cache import lasting_folder, publish, read_note, write_note
from tcm.data.domains import Domain
from tcm.data.images import BadImage, content_hash, read_image, resized
from tcm.data.reading import AT_ONCE, read_all
from tcm.data.store import (
    FORMAT,
    RESIZED_FORMAT,
    ImageStore,
    StoreIndex,
    digest,
    format_of,
    label_numbers,
    open_if_complete,
    open_store,
    same_store,
    stores_of_shape,
)
from tcm.data.unfinished import PackedFile, UnfinishedStore
from tcm.errors import InputError, printable
from tcm.progress import format_size

TOGETHER = 2**20  # bytes of pixels that a thread makes before it hands them over
DECODERS = ("pillow", "torch", "torchvision")  # another version may make other pixels: it begins anew
SAMPLE = 10  # files that are looked for in a store before all are


def open_or_pack(
    domain: Domain,
    size: int,
    cache: Path,
    *,
    on_bad_image: Literal["stop", "skip"] = "stop",
    quiet: bool = False,
) -> ImageStore:
    """The domain's images at size x size, from the cache if they are there, else packed into it first."""
    # A note maps the files' times and sizes to their store, so that a second run reads no image.
    stats = _stats(domain)
    root = os.path.abspath(domain.root)
    fingerprint = digest(FORMAT, size, root, domain.paths, domain.class_names, stats)
    store = _noted(domain, fingerprint, cache) or _moved(domain, size, cache, quiet)
    if store is None:
        name = digest(RESIZED_FORMAT, [version(package) for package in DECODERS], size, root, domain.name)
        with lasting_folder(cache, name, f"packing {printable(domain.name)}", quiet) as folder:
            # Another process may have packed the images while this one waited for the folder.
            store = _noted(domain, fingerprint, cache) or _packed(domain, size, stats, folder, cache, quiet)
            write_note(cache, fingerprint, store.folder.name)
    else:
        write_note(cache, fingerprint, store.folder.name)
    if store.skipped:
        _report_bad(store.skipped, domain, on_bad_image)
    # The same store serves domains that number the same classes differently.
    names = [store.classes[label] if label >= 0 else None for label in store.labels.tolist()]
    labels = label_numbers(names, domain.classes)
    return replace(store, name=domain.name, classes=domain.classes, labels=labels)


def _noted(domain: Domain, fingerprint: str, cache: Path) -> ImageStore | None:
    """The store that a note names, if it is complete."""
    key = read_note(cache, fingerprint)
    return _cached(cache / key, domain) if key else None


def _moved(domain: Domain, size: int, cache: Path, quiet: bool) -> ImageStore | None:
    """The store of the same files, which have another place or time; all are read only if some are in a store."""
    if not any(_may_hold(folder, domain) for folder in stores_of_shape(cache, len(domain.paths), size)):
        return None
    hashes = list(read_all(partial(_content, domain.root), domain.paths, f"reading {domain.name}", quiet=quiet))
    found = (_cached(cache / _key(domain, size, hashes, format), domain) for format in (FORMAT, RESIZED_FORMAT))
    return next(filter(None, found), None)


def _may_hold(folder: Path, domain: Domain) -> bool:
    """Whether the store in that folder has the same paths and at least one of some files."""
    store, some = open_if_complete(folder), range(0, len(domain.paths), max(len(domain.paths) // SAMPLE, 1))
    if store is None or store.paths != list(domain.paths):
        return False
    return any(store.hashes[row] == _content(domain.root, domain.paths[row]) for row in some)


def _cached(folder: Path, domain: Domain) -> ImageStore | None:
    """The store in that folder; None if it is not complete, or if a file that it skipped can be read by now."""
    store = open_if_complete(folder)
    return None if store and any(_is_readable(domain.root, path) for path, _ in store.skipped) else store


def _key(domain: Domain, size: int, contents: Sequence[str], format: int) -> str:
    return digest(format, size, domain.paths, domain.class_names, contents)


def _packed(domain: Domain, size: int, stats: NDArray[np.int64], folder: Path, cache: Path, quiet: bool) -> ImageStore:
    """The store in the cache, packed in `folder` first, from where an earlier process stopped.

    Files that cannot be read are skipped and listed in it.
    """
    begun = UnfinishedStore(folder, size, domain.paths, stats, partial(_is_readable, domain.root))
    _warn_if_full(cache, (len(domain.paths) - begun.done) * 3 * size**2)
    read, left = partial(_packed_file, domain.root, size), domain.paths[begun.done :]
    at_once = max(min(TOGETHER // (3 * size**2), AT_ONCE), 1)
    title = f"packing {domain.name}"
    with (
        begun,
        closing(read_all(read, left, title, at_once=at_once, done=begun.done, quiet=quiet)) as files,
    ):
        for found in files:
            begun.add(found)
    index = _index(domain, size, begun)
    if not index.paths:
        _report_bad([(path, reason) for path, reason in index.skipped], domain, "stop")
    index.write(begun.folder)
    target = cache / _key(domain, size, begun.contents, index.format)
    publish(begun.folder, target, same_store)
    return open_store(target)


def _index(domain: Domain, size: int, packed: UnfinishedStore) -> StoreIndex:
    rows = [row for row in range(packed.done) if row not in packed.reasons]
    names, sizes = domain.class_names, [size for size in packed.sizes if size]
    return StoreIndex(
        name=domain.name,
        size=size,
        classes=list(domain.classes),
        paths=[domain.paths[row] for row in rows],
        labels=[names[row] for row in rows],
        original_sizes=sizes,
        hashes=[packed.contents[row] for row in rows],
        skipped=[[domain.paths[row], reason] for row, reason in packed.reasons.items()],
        format=format_of(sizes, size),
    )


def _packed_file(root: Path, size: int, path: str) -> PackedFile:
    pixels, content = read_image(os.path.join(root, path))
    if isinstance(pixels, BadImage):
        return PackedFile(None, None, str(content), str(pixels))
    height, width = pixels.shape[:2]
    return PackedFile(resized(pixels, size), (width, height), str(content))


def _content(root: Path, path: str) -> str:
    try:
        return content_hash(os.path.join(root, path))
    except BadImage as reason:
        return str(reason)


def _is_readable(root: Path, path: str) -> bool:
    return not isinstance(read_image(os.path.join(root, path)).pixels, BadImage)


def _warn_if_full(cache: Path, needed: int) -> None:
    free = shutil.disk_usage(cache).free
    if needed > free:
        found = f"the packed images take {format_size(needed)}, but {printable(cache)} has {format_size(free)} left"
        warnings.warn(f"{found}; free some space or set `data.cache`", UserWarning, stacklevel=4)


def _report_bad(skipped: Sequence[tuple[str, str]], domain: Domain, on_bad_image: Literal["stop", "skip"]) -> None:
    path, reason = skipped[0]
    first = f"{printable(domain.root / path)}: {reason}"
    count = f"{len(skipped)} of the {len(domain.paths)} images of {printable(domain.name)} cannot be read"
    if on_bad_image == "skip":
        warnings.warn(f"{count} and are skipped, the first is {first}", UserWarning, stacklevel=3)
        return
    remedy = "`tcm data check` lists them; remove them or set `data.on_bad_image=skip`"
    raise InputError(f"{count}, the first is {first}; {remedy}")


def _stats(domain: Domain) -> NDArray[np.int64]:
    """The size and the time of change of each file, [n, 2]; -1 where there is no file."""
    root, count = os.fspath(domain.root), 2 * len(domain.paths)
    found = (number for path in domain.paths for number in _stat(os.path.join(root, path)))
    return np.fromiter(found, np.int64, count).reshape(-1, 2)


def _stat(file: str) -> tuple[int, int]:
    try:
        status = os.stat(file)
        return status.st_size, status.st_mtime_ns
    except OSError:
        return -1, -1
