"""Decoded, resized images, packed as uint8 in one memory-mapped file.

A store is a folder with images.npy [n, size, size, 3], index.json and, if there is any, extra.npz.
"""

import hashlib
import json
import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tcm.data.cache import atomic_folder
from tcm.errors import InputError, printable

FORMAT = 1  # part of every key: after raising it, all older stores are packed again
RESIZED_FORMAT = 2  # that of stores with resized images: those of format 1 were resized by Pillow
PIECE = 10_000  # entries of a list that are made into text together


@dataclass(frozen=True)
class StoreIndex:
    """What index.json holds: one entry per packed image in each list, and the files that could not be read."""

    name: str
    size: int
    classes: list[str]
    paths: list[str]
    labels: list[str | None]
    original_sizes: Sequence[Sequence[int]]  # width, height
    hashes: list[str]
    skipped: list[list[str]]  # path, reason
    format: int

    def write(self, folder: Path) -> None:
        """Writes index.json into the folder."""
        (folder / "index.json").write_text(json.dumps(vars(self)), encoding="utf-8")  # asdict would copy every list


def format_of(original_sizes: Sequence[Sequence[int]], size: int) -> int:
    """The format of a store of images with these widths and heights."""
    unchanged = all(width == height == size for width, height in original_sizes)
    return FORMAT if unchanged else RESIZED_FORMAT


class PooledSource(NamedTuple):
    """One of the sources whose images a store holds one after the other."""

    name: str
    images: int


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
    pages: mmap.mmap | None = None  # the memory of the images
    sources: tuple[PooledSource, ...] = ()  # if several were pooled, in the order of their images

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:  # the generated one would print every path
        about = f"{self.name!r}, {len(self)} images of {self.size} x {self.size}, {len(self.classes)} classes"
        return f"ImageStore({about}, in {self.folder})"

    @property
    def fingerprint(self) -> str:
        """A hash of the images, their order and their size; labels play no part."""
        return digest(format_of(self.original_sizes, self.size), self.size, self.paths, self.hashes)

    def release_pages(self) -> None:
        """Images that were read count as memory of the process until this is called; then they are the system's alone.

        Reading them again is as fast as before while the system keeps them.
        """
        if self.pages is not None and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self.pages.madvise(mmap.MADV_DONTNEED)

    def source_rows(self) -> Iterator[tuple[PooledSource, slice]]:
        """Every pooled source and the rows of its images; nothing unless several were pooled."""
        start = 0
        for source in self.sources:
            yield source, slice(start, start + source.images)
            start += source.images

    @property
    def source_numbers(self) -> Tensor | None:
        """The number of each image's source, int64 [n]; None unless several were pooled."""
        counts = torch.tensor([source.images for source in self.sources])
        return torch.arange(len(counts)).repeat_interleave(counts) if self.sources else None

    def extra(self) -> dict[str, np.ndarray]:
        """The arrays that were packed with the images."""
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
        if pixels.shape != expected or end != (folder / "images.npy").stat().st_size:
            raise ValueError(f"images.npy does not hold {expected[0]} images of side {index.size}")
        if index.format != format_of(index.original_sizes, index.size):
            raise ValueError("another version of tcm made it")
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or printable(error)
        raise InputError(
            f"{printable(folder)} is not a complete image store: {reason}; delete it and pack again"
        ) from error
    return ImageStore(
        folder=folder,
        name=index.name,
        size=index.size,
        images=torch.from_numpy(pixels),
        labels=label_numbers(index.labels, index.classes),
        paths=index.paths,
        classes=tuple(index.classes),
        original_sizes=_shared_pairs(index.original_sizes),
        hashes=index.hashes,
        skipped=[(path, reason) for path, reason in index.skipped],
        pages=getattr(pixels, "_mmap", None),
    )


def _shared_pairs(sizes: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The sizes as tuples. Equal ones are one object: a million of them would take 130 MB."""
    known: dict[tuple[int, int], tuple[int, int]] = {}
    return [known.setdefault(pair, pair) for width, height in sizes for pair in ((width, height),)]


def open_if_complete(folder: Path) -> ImageStore | None:
    """The store in that folder, None if there is none or if it is damaged."""
    try:
        return open_store(folder)
    except InputError:
        return None


def stores_of_shape(cache: Path, count: int, size: int) -> list[Path]:
    """The folders of stores with so many images of this size, by the headers of their files alone."""
    found: list[Path] = []
    for file in sorted(cache.glob("*/images.npy")):
        with suppress(OSError, ValueError), file.open("rb") as opened:
            np.lib.format.read_magic(opened)
            if np.lib.format.read_array_header_1_0(opened)[0] == (count, size, size, 3):
                found.append(file.parent)
    return found


def pack_arrays(
    name: str,
    images: np.ndarray,
    labels: Sequence[int] | np.ndarray,
    classes: Sequence[str],
    paths: Sequence[str],
    folder: Path,
    extra: dict[str, np.ndarray] | None = None,
) -> ImageStore:
    """A new store at `folder` with images uint8 [n, size, size, 3]; `extra` is saved beside them."""
    size = images.shape[1]
    names = [classes[label] if label >= 0 else None for label in labels]
    hashes = [hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest() for image in images]
    originals = [[size, size] for _ in paths]
    index = StoreIndex(name, size, list(classes), list(paths), names, originals, hashes, skipped=[], format=FORMAT)
    with atomic_folder(folder, same_store) as temporary:
        np.save(temporary / "images.npy", images)
        if extra is not None:
            np.savez(temporary / "extra.npz", **extra)  # pyright: ignore[reportArgumentType]
        index.write(temporary)
    return open_store(folder)


def same_store(new: Path, old: Path) -> bool:
    """Whether the old folder is a complete store with the images of the new one."""
    # The index holds the hash of every image.
    complete = open_if_complete(old) is not None
    return complete and (new / "index.json").read_bytes() == (old / "index.json").read_bytes()


def label_numbers(names: Sequence[str | None], classes: Sequence[str]) -> Tensor:
    """Labels int64 [n], the index of each name in `classes`, -1 for None."""
    number: dict[str | None, int] = {name: index for index, name in enumerate(classes)}
    return torch.tensor([-1 if name is None else number[name] for name in names], dtype=torch.int64)


def digest(*parts: object) -> str:
    """A hash of JSON values and arrays, 32 hexadecimal digits."""
    made = hashlib.blake2b(digest_size=16)
    for text in _json_pieces(parts):
        made.update(text.encode())
    return made.hexdigest()


def _json_pieces(parts: Sequence[object]) -> Iterator[str]:
    """json.dumps(parts) in pieces: the lists of a million files would be a text of 100 MB."""
    yield "["
    for number, part in enumerate(parts):
        yield ", " if number else ""
        if not isinstance(part, list | tuple | np.ndarray):
            yield json.dumps(part)
            continue
        yield "["
        for start in range(0, len(part), PIECE):
            piece = part[start : start + PIECE]
            listed = piece.tolist() if isinstance(piece, np.ndarray) else piece
            yield (", " if start else "") + json.dumps(listed)[1:-1]
        yield "]"
    yield "]"
