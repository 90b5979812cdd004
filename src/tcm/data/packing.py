"""A domain's image files to a store in the cache: each image is decoded once.

A store in the cache is named by a hash of its content: paths, classes, the bytes of the files, and the size.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import numpy as np

from tcm.data.cache import atomic_folder, read_note, write_note
from tcm.data.domains import Domain
from tcm.data.images import BadImage, content_hash, decode, resized
from tcm.data.reading import read_all
from tcm.data.store import (
    FORMAT,
    ImageStore,
    StoreIndex,
    digest,
    label_numbers,
    open_if_complete,
    open_store,
    same_store,
)
from tcm.errors import InputError, printable

Read = TypeVar("Read")


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
    fingerprint = _stat_fingerprint(domain, size)
    key = read_note(cache, fingerprint)
    store = _cached(cache / key, domain) if key else None
    if store is None:
        files = [domain.root / path for path in domain.paths]
        hashes = list(read_all(partial(_or_bad, content_hash), files, f"reading {domain.name}", quiet=quiet))
        key = digest(FORMAT, size, domain.paths, domain.class_names, [str(found) for found in hashes])
        store = _cached(cache / key, domain) or _packed(domain, size, hashes, cache / key, quiet)
        write_note(cache, fingerprint, key)
    if store.skipped:
        _report_bad(store.skipped, domain, on_bad_image)
    # The same store serves domains that number the same classes differently.
    names = [store.classes[label] if label >= 0 else None for label in store.labels.tolist()]
    labels = label_numbers(names, domain.classes)
    return replace(store, name=domain.name, classes=domain.classes, labels=labels)


def _cached(folder: Path, domain: Domain) -> ImageStore | None:
    """The store in that folder; None if it is not complete, or if a file that it skipped can be read by now."""
    store = open_if_complete(folder)
    skipped = [domain.root / path for path, _ in store.skipped] if store else []
    return None if any(not isinstance(_or_bad(decode, file), BadImage) for file in skipped) else store


def _packed(domain: Domain, size: int, hashes: Sequence[str | BadImage], folder: Path, quiet: bool) -> ImageStore:
    """The store at `folder`, newly packed; files that cannot be read are skipped and listed in it."""
    index = StoreIndex(domain.name, size, list(domain.classes), [], [], [], [], skipped=[])
    files = [domain.root / path for path in domain.paths]
    read = partial(_or_bad, partial(_pixels, size=size))
    # Plain writes, not open_memmap: how many images can be read is known only at the end, written pages of a map count
    # as memory of this process, and a full disk would kill it (SIGBUS) in place of an error.
    with (
        atomic_folder(folder, same_store) as temporary,
        (temporary / "images.npy").open("wb") as file,
        closing(read_all(read, files, f"packing {domain.name}", quiet=quiet)) as pixels,
    ):
        _write_header(file, 0, size)
        for path, name, content, found in zip(domain.paths, domain.class_names, hashes, pixels, strict=True):
            if isinstance(found, BadImage):
                index.skipped.append([path, str(found)])
                continue
            array, original_size = found
            file.write(array.data)
            index.paths.append(path)
            index.labels.append(name)
            index.original_sizes.append(original_size)
            index.hashes.append(str(content))
        if not index.paths:
            _report_bad([(path, reason) for path, reason in index.skipped], domain, "stop")
        file.seek(0)
        _write_header(file, len(index.paths), size)
        index.write(temporary)
    return open_store(folder)


def _write_header(file: BinaryIO, count: int, size: int) -> None:
    # NumPy leaves room for the first axis to grow, so the header of the final count is as long as that of 0.
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, size, size, 3)}
    np.lib.format.write_array_header_1_0(file, header)


def _pixels(path: Path, size: int) -> tuple[np.ndarray, list[int]]:
    image = decode(path)
    return resized(image, size), [image.width, image.height]


def _or_bad(read: Callable[[Path], Read], path: Path) -> Read | BadImage:
    try:
        return read(path)
    except BadImage as reason:
        return reason


def _report_bad(skipped: Sequence[tuple[str, str]], domain: Domain, on_bad_image: Literal["stop", "skip"]) -> None:
    path, reason = skipped[0]
    first = f"{printable(domain.root / path)}: {reason}"
    count = f"{len(skipped)} of the {len(domain.paths)} images of {printable(domain.name)} cannot be read"
    if on_bad_image == "skip":
        warnings.warn(f"{count} and are skipped, the first is {first}", UserWarning, stacklevel=3)
        return
    remedy = "`tcm data check` lists them; remove them or set `data.on_bad_image=skip`"
    raise InputError(f"{count}, the first is {first}; {remedy}")


def _stat_fingerprint(domain: Domain, size: int) -> str:
    """A hash that changes when a file's size or time of change does."""
    stats = []
    for path in domain.paths:
        try:
            status = (domain.root / path).stat()
        except OSError:
            stats.append(None)
        else:
            stats.append([status.st_size, status.st_mtime_ns])
    return digest(FORMAT, size, os.path.abspath(domain.root), domain.paths, domain.class_names, stats)
