"""Images decoded once, resized, and packed as uint8 in one memory-mapped file.

A store is a folder with images.npy [n, size, size, 3], index.json and, if there is any, extra.npz. Packed stores lie
in a cache, each named by a hash of its content: paths, classes, the bytes of the files, and the size.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from tcm.data.cache import read_note, whole_or_nothing, write_note
from tcm.data.domains import Domain
from tcm.data.images import BadImage, content_hash, decode, resized
from tcm.data.reading import read_all
from tcm.errors import InputError, printable

Read = TypeVar("Read")

FORMAT = 1  # part of every key: raising it makes all older stores be packed again


@dataclass(frozen=True)
class StoreIndex:
    """What index.json holds: one entry per packed image in each list, and the files that could not be read."""

    name: str
    size: int
    classes: list[str]
    paths: list[str]
    labels: list[str | None]
    original_sizes: list[list[int]]  # width, height
    hashes: list[str]
    skipped: list[list[str]]  # path, reason
    format: int = FORMAT


@dataclass(frozen=True, eq=False)
class ImageStore:
    """The packed images of one domain. They are shared with the file: read them, never write to them."""

    folder: Path
    name: str
    size: int
    images: Tensor  # uint8 [n, size, size, 3], memory-mapped
    labels: Tensor  # int64 [n], -1 where unknown
    paths: list[str]
    classes: tuple[str, ...]
    original_sizes: list[tuple[int, int]]  # width, height
    hashes: list[str]
    skipped: list[tuple[str, str]]  # path and reason of the files that could not be read

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:  # the generated one would print every path
        about = f"{self.name!r}, {len(self)} images of {self.size} x {self.size}, {len(self.classes)} classes"
        return f"ImageStore({about}, in {self.folder})"

    @property
    def fingerprint(self) -> str:
        """Tells these images, in this order and at this size, from any others; their labels play no part."""
        return _digest(FORMAT, self.size, self.paths, self.hashes)

    def extra(self) -> dict[str, np.ndarray]:
        """The arrays that were packed beside the images."""
        if not (self.folder / "extra.npz").exists():
            return {}
        with np.load(self.folder / "extra.npz") as arrays:
            return dict(arrays)


def open_store(folder: Path) -> ImageStore:
    """The store in that folder; an error if there is none or if it is damaged."""
    try:
        index = StoreIndex(**json.loads((folder / "index.json").read_text(encoding="utf-8")))
        # Copy on write: torch wants memory it could write to, and the file stays as it is.
        pixels = np.lib.format.open_memmap(folder / "images.npy", mode="c")
        expected = (len(index.paths), index.size, index.size, 3)
        end = pixels.offset + pixels.nbytes  # pyright: ignore[reportAttributeAccessIssue]
        if pixels.shape != expected or end != (folder / "images.npy").stat().st_size or index.format != FORMAT:
            raise ValueError(f"images.npy does not hold {expected[0]} images of side {index.size}")
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or printable(error)
        raise InputError(
            f"{printable(folder)} is not a whole image store: {reason}; delete it and pack again"
        ) from error
    return ImageStore(
        folder=folder,
        name=index.name,
        size=index.size,
        images=torch.from_numpy(pixels),
        labels=_label_numbers(index.labels, index.classes),
        paths=index.paths,
        classes=tuple(index.classes),
        original_sizes=[(width, height) for width, height in index.original_sizes],
        hashes=index.hashes,
        skipped=[(path, reason) for path, reason in index.skipped],
    )


def pack_arrays(
    name: str,
    images: np.ndarray,
    labels: Sequence[int] | np.ndarray,
    classes: Sequence[str],
    paths: Sequence[str],
    folder: Path,
    extra: dict[str, np.ndarray] | None = None,
) -> ImageStore:
    """A store at `folder` made of images uint8 [n, size, size, 3]; `extra` is saved beside them."""
    size = images.shape[1]
    names = [classes[label] if label >= 0 else None for label in labels]
    hashes = [hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest() for image in images]
    originals = [[size, size] for _ in paths]
    index = StoreIndex(name, size, list(classes), list(paths), names, originals, hashes, skipped=[])
    with whole_or_nothing(folder, _is_same) as temporary:
        np.save(temporary / "images.npy", images)
        if extra is not None:
            np.savez(temporary / "extra.npz", **extra)  # pyright: ignore[reportArgumentType]
        _write_index(temporary, index)
    return open_store(folder)


def open_or_pack(
    domain: Domain,
    size: int,
    cache: Path,
    *,
    on_bad_image: Literal["stop", "skip"] = "stop",
    quiet: bool = False,
) -> ImageStore:
    """The domain's images at size x size, from the cache if they are there, else packed into it first."""
    # The files' times and sizes tell which store was theirs last time, so that a second run reads no image.
    fingerprint = _stat_fingerprint(domain, size)
    key = read_note(cache, fingerprint)
    store = _cached(cache / key, domain) if key else None
    if store is None:
        files = [domain.root / path for path in domain.paths]
        hashes = list(read_all(partial(_or_bad, content_hash), files, f"reading {domain.name}", quiet=quiet))
        key = _digest(FORMAT, size, domain.paths, domain.class_names, [str(found) for found in hashes])
        store = _cached(cache / key, domain) or _packed(domain, size, hashes, cache / key, quiet)
        write_note(cache, fingerprint, key)
    if store.skipped:
        _report_bad(store.skipped, domain, on_bad_image)
    # One store may serve two readings of its files that number the classes differently.
    names = [store.classes[label] if label >= 0 else None for label in store.labels.tolist()]
    labels = _label_numbers(names, domain.classes)
    return replace(store, name=domain.name, classes=domain.classes, labels=labels)


def _cached(folder: Path, domain: Domain) -> ImageStore | None:
    """The store in that folder; None if it is not whole, or if a file that it left out can be read by now."""
    store = _store_or_none(folder)
    left_out = [domain.root / path for path, _ in store.skipped] if store else []
    return None if any(not isinstance(_or_bad(decode, file), BadImage) for file in left_out) else store


def _packed(domain: Domain, size: int, hashes: Sequence[str | BadImage], folder: Path, quiet: bool) -> ImageStore:
    """The store at `folder`, newly packed; files that cannot be read are left out and noted in it."""
    index = StoreIndex(domain.name, size, list(domain.classes), [], [], [], [], skipped=[])
    files = [domain.root / path for path in domain.paths]
    read = partial(_or_bad, partial(_pixels, size=size))
    # Plain writes: pages written through a memory map would count as this process's memory.
    with (
        whole_or_nothing(folder, _is_same) as temporary,
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
        _write_index(temporary, index)
    return open_store(folder)


def _write_header(file: BinaryIO, count: int, size: int) -> None:
    # NumPy leaves room for the first axis to grow, so the header of the final count is as long as that of 0.
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, size, size, 3)}
    np.lib.format.write_array_header_1_0(file, header)


def _write_index(folder: Path, index: StoreIndex) -> None:
    (folder / "index.json").write_text(json.dumps(asdict(index)), encoding="utf-8")


def _is_same(one: Path, other: Path) -> bool:
    # The index holds the hash of every image.
    whole = _store_or_none(other) is not None
    return whole and (one / "index.json").read_bytes() == (other / "index.json").read_bytes()


def _store_or_none(folder: Path) -> ImageStore | None:
    try:
        return open_store(folder)
    except InputError:
        return None


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
        warnings.warn(f"{count} and are left out, the first is {first}", UserWarning, stacklevel=3)
        return
    remedy = "`tcm data check` lists them; remove them or pass --data.on-bad-image skip"
    raise InputError(f"{count}, the first is {first}; {remedy}")


def _label_numbers(names: Sequence[str | None], classes: Sequence[str]) -> Tensor:
    number: dict[str | None, int] = {name: index for index, name in enumerate(classes)}
    return torch.tensor([-1 if name is None else number[name] for name in names], dtype=torch.int64)


def _stat_fingerprint(domain: Domain, size: int) -> str:
    stats = []
    for path in domain.paths:
        try:
            status = (domain.root / path).stat()
        except OSError:
            stats.append(None)
        else:
            stats.append([status.st_size, status.st_mtime_ns])
    return _digest(FORMAT, size, os.path.abspath(domain.root), domain.paths, domain.class_names, stats)


def _digest(*parts: object) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
