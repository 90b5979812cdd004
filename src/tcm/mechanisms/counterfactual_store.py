"""The counterfactuals of a domain's images on disk: the folder in which the two stages meet.

images.npy [n, k, size, size, 3], winner.npy [n] and losses.npy [n, k] have the order of the original store: image i and
its counterfactuals are found by one number. index.json is written last, so it means that the folder is whole; until
then progress.json says how many images are done.
"""

import io
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tcm.data.store import ImageStore
from tcm.errors import InputError, printable
from tcm.training.run_folder import holds_files, make_folder, write_atomically

FORMAT = 1  # raising it makes older folders be refused


@dataclass(frozen=True)
class CounterfactualIndex:
    """What index.json holds: which mechanisms made which counterfactuals of which images."""

    run: str  # the folder of the mechanisms, to be told in messages
    mechanisms: str  # a hash of their weights
    domain: str  # name of the domain that the originals are from
    other: str  # name of the domain that they were carried to
    originals: str  # the fingerprint of the original store
    images: int
    k: int
    size: int
    batch: int  # images that went through the networks together: with others the last bits would differ
    format: int = FORMAT

    @property
    def arrays(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Type and shape of each array by name."""
        return {
            "images": (np.dtype(np.uint8), (self.images, self.k, self.size, self.size, 3)),
            "winner": (np.dtype(np.int64), (self.images,)),
            "losses": (np.dtype(np.float32), (self.images, self.k)),
        }

    def mismatch(self, wanted: dict[str, Any]) -> str | None:
        """In what this differs from the wanted fields, in words; None where it does not."""
        words = {
            "format": "has format {} instead of {}",
            "size": "holds images of side {} instead of {}",
            "images": "holds the counterfactuals of {} images instead of {}",
            "k": "holds {} counterfactuals of each image instead of {}",
            "originals": "was made of other images, or of these under other paths",
            "mechanisms": f"was made by other mechanisms, those of {printable(self.run)}",
        }
        differing = (name for name in words if name in wanted and getattr(self, name) != wanted[name])
        return next((words[name].format(getattr(self, name), wanted[name]) for name in differing), None)


@dataclass(frozen=True)
class CounterfactualArrays:
    """The counterfactuals of one domain. They are shared with the files: read them, never write to them."""

    images: Tensor  # uint8 [n, k, size, size, 3], memory-mapped: M_i(x_s) of a source, M_i^-1(x_t) of a target
    winner: Tensor  # int64 [n], the mechanism with the smallest loss (Eq. 2)
    losses: Tensor  # float32 [n, k]
    index: CounterfactualIndex


def open_counterfactuals(
    folder: Path, store: ImageStore, k: int | None = None, mechanisms: str | None = None, run: Path | None = None
) -> CounterfactualArrays:
    """The counterfactuals in `folder` of that store's images; an error unless they are whole and of these images.

    `k` and `mechanisms`, if given, are the number and the hash of those that must have made them, and `run` is where
    they are now: the index tells where they were.
    """
    index, done = read_index(folder)
    if index is None:
        raise InputError(
            f"{printable(folder)} holds no transported images; make them with tcm transport {printable(run or 'RUN')}"
        )
    again = f"repeat tcm transport {printable(run or index.run)}"
    foreign = index.mismatch({"size": store.size, "images": len(store), "originals": store.fingerprint})
    if foreign:
        remedy = f"name mechanisms that were trained and transported on the images of {printable(store.name)}"
        raise InputError(f"{printable(folder)} {foreign}; {remedy}")
    made_with = {"format": FORMAT, "k": k, "mechanisms": mechanisms}
    stale = index.mismatch({name: value for name, value in made_with.items() if value is not None})
    if stale:
        raise InputError(f"{printable(folder)} {stale}; delete it and {again}")
    if done is not None:
        found = f"{printable(folder)} is not finished: {done} of {index.images} images are transported"
        raise InputError(f"{found}; {again}")
    try:
        arrays = {name: _opened(folder / f"{name}.npy", *kind) for name, kind in index.arrays.items()}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or printable(error)
        raise InputError(f"{printable(folder)} is damaged: {reason}; delete the folder and {again}") from error
    return CounterfactualArrays(arrays["images"], arrays["winner"], arrays["losses"], index)


def _opened(file: Path, kind: np.dtype[Any], shape: tuple[int, ...]) -> Tensor:
    # Copy on write: torch wants memory it could write to, and the file stays as it is.
    array = np.lib.format.open_memmap(file, mode="c")
    if array.shape != shape or array.dtype != kind:
        raise ValueError(f"{file.name} does not hold {kind} {list(shape)}")
    return torch.from_numpy(array)


def read_index(folder: Path) -> tuple[CounterfactualIndex | None, int | None]:
    """The index of a folder, None if it has none; and how many images are done, None if all are."""
    for name in ("index.json", "progress.json"):
        try:
            content = json.loads((folder / name).read_text(encoding="utf-8"))
            done = content.pop("done", None)
            return CounterfactualIndex(**content), done
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, TypeError, AttributeError) as error:
            reason = getattr(error, "strerror", None) or printable(error)
            found = f"{printable(folder / name)} is damaged ({reason})"
            raise InputError(f"{found}; delete the folder and repeat tcm transport") from error
    return None, None


class CounterfactualWriter:
    """Fills a folder in order, from where an earlier process stopped; `finish` makes it whole. Close it in the end."""

    def __init__(self, folder: Path, index: CounterfactualIndex):
        self.folder, self.index, self.done, self.finished = folder, index, 0, False
        self._columns: list[_Column] = []
        found, done = read_index(folder)
        foreign = found.mismatch(asdict(index)) if found else None
        if foreign:
            raise InputError(f"{printable(folder)} {foreign}; delete it or choose another --out")
        if found is None and folder.is_dir() and holds_files(folder):
            raise InputError(f"{printable(folder)} holds other files and no transported images; choose another --out")
        self.finished = found is not None and done is None
        if self.finished:
            self.done = index.images
            (folder / "progress.json").unlink(missing_ok=True)
            return
        self.done = done or 0
        self._open(is_new=found is None)

    def _open(self, is_new: bool) -> None:
        make_folder(self.folder)
        if is_new:
            self._note()
        try:
            for name, kind in self.index.arrays.items():
                self._columns.append(_Column(self.folder / f"{name}.npy", *kind))
        except OSError as error:
            self.close()
            if not self.done:  # give back the room that was taken for nothing
                shutil.rmtree(self.folder, ignore_errors=True)
            needed = sum(kind.itemsize * math.prod(shape) for kind, shape in self.index.arrays.values()) / 1e9
            found = f"{printable(self.folder)} cannot hold the {needed:.3g} GB of the transported images"
            raise InputError(f"{found} ({error.strerror}); make room or choose another --out") from error
        if not all(column.was_whole for column in self._columns):
            self.done = 0

    def append(self, first: int, images: np.ndarray, winner: np.ndarray, losses: np.ndarray) -> None:
        """Writes the next images' rows, from number `first`; a process that is killed right now has not done them."""
        assert first == self.done, "rows come in order, and after rows that could not be written come none"
        try:
            for column, rows in zip(self._columns, (images, winner, losses), strict=True):
                column.write(self.done, rows)
        except OSError as error:
            remedy = "free some space and repeat the command to go on"
            raise InputError(f"{printable(self.folder)} could not be written ({error.strerror}); {remedy}") from error
        self.done += len(images)

    def save(self) -> None:
        """From now on, the rows so far are done."""
        for column in self._columns:
            os.fdatasync(column.descriptor)
        self._note()

    def finish(self) -> None:
        """Makes the folder whole."""
        assert self.done == self.index.images
        self.save()
        write_atomically(self.folder / "index.json", json.dumps(asdict(self.index), indent=2).encode())
        (self.folder / "progress.json").unlink()

    def close(self) -> None:
        """Lets go of the files."""
        for column in self._columns:
            os.close(column.descriptor)
        self._columns = []

    def _note(self) -> None:
        content = {**asdict(self.index), "done": self.done}
        write_atomically(self.folder / "progress.json", json.dumps(content, indent=2).encode())


class _Column:
    """An array file of its final size, whose rows are written one after the other."""

    def __init__(self, file: Path, kind: np.dtype[Any], shape: Sequence[int]):
        header = io.BytesIO()
        fields = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(header, fields)
        self.start, self.row = header.tell(), kind.itemsize * math.prod(shape[1:])
        size = self.start + self.row * shape[0]
        self.was_whole = file.exists() and file.stat().st_size == size
        self.descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not self.was_whole:
                os.ftruncate(self.descriptor, size)
                # Takes the room now: a disk that is too small is found out before the work, not hours into it.
                os.posix_fallocate(self.descriptor, 0, size)
            _write_all(self.descriptor, header.getbuffer(), 0)
        except OSError:
            os.close(self.descriptor)
            raise

    def write(self, first: int, rows: np.ndarray) -> None:
        _write_all(self.descriptor, np.ascontiguousarray(rows).data.cast("B"), self.start + first * self.row)


def _write_all(descriptor: int, content: memoryview, offset: int) -> None:
    # Plain writes: a memory map would answer a full disk by killing the process.
    while content:
        written = os.pwrite(descriptor, content, offset)
        content, offset = content[written:], offset + written
