"""The counterfactuals of a domain's images on disk: written by stage 1, read by stage 2.

images.npy [n, k, size, size, 3], winner.npy [n] and losses.npy [n, k] have the order of the original store: image i and
its counterfactuals have the same number. index.json is written last: it means that the folder is complete. Until then
progress.json holds the number of images that are done.
"""

import json
import math
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tcm.data.store import ImageStore
from tcm.errors import InputError, printable
from tcm.progress import format_size
from tcm.training.fence import Fence
from tcm.training.files import holds_files, make_folder, write_atomically
from tcm.training.processes import ALONE, Processes

FORMAT = 1  # with another number, older folders are refused


@dataclass(frozen=True)
class CounterfactualIndex:
    """The content of index.json: which mechanisms made which counterfactuals of which images."""

    run: str  # the folder of the mechanisms, for messages
    mechanisms: str  # a hash of their weights
    domain: str  # name of the domain that the originals are from
    other: str  # name of the domain that they were transported to
    originals: str  # the fingerprint of the original store
    images: int
    k: int
    size: int
    batch: int  # images that go through the networks together: another number changes the last bits
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
        """The first difference from the wanted fields, in words; None if there is none."""
        words = {
            "format": "has format {} instead of {}",
            "size": "holds images of side {} instead of {}",
            "images": "holds the counterfactuals of {} images instead of {}",
            "k": "holds {} counterfactuals of each image instead of {}",
            "originals": "was made from other images, or from these under other paths",
            "mechanisms": f"was made by other mechanisms, those of {printable(self.run)}",
        }
        differing = (name for name in words if name in wanted and getattr(self, name) != wanted[name])
        return next((words[name].format(getattr(self, name), wanted[name]) for name in differing), None)


@dataclass(frozen=True)
class CounterfactualArrays:
    """The counterfactuals of one domain. They share memory with the files: do not write to them."""

    images: Tensor  # uint8 [n, k, size, size, 3], memory-mapped: M_i(x_s) of a source, M_i^-1(x_t) of a target
    winner: Tensor  # int64 [n], the mechanism with the smallest loss (TCM Eq. (2))
    losses: Tensor  # float32 [n, k]
    index: CounterfactualIndex


def open_counterfactuals(
    folder: Path, store: ImageStore, k: int | None = None, mechanisms: str | None = None, run: Path | None = None
) -> CounterfactualArrays:
    """The counterfactuals in `folder` of the store's images; an error unless they are complete and of these images.

    `k` and `mechanisms`, if given, are the number and the hash of the mechanisms that must have made them. `run` is the
    folder of these mechanisms now; the index holds the folder at that time.
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
        arrays = {name: torch.from_numpy(_mapped(folder / f"{name}.npy", *kind)) for name, kind in index.arrays.items()}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or printable(error)
        raise InputError(f"{printable(folder)} is damaged: {reason}; delete the folder and {again}") from error
    return CounterfactualArrays(arrays["images"], arrays["winner"], arrays["losses"], index)


def _mapped(file: Path, kind: np.dtype[Any], shape: tuple[int, ...]) -> np.memmap:
    # Copy on write: torch wants writable memory, and the file must not change.
    array = np.lib.format.open_memmap(file, mode="c")
    if array.shape != shape or array.dtype != kind:
        raise ValueError(f"{file.name} does not hold {kind} {list(shape)}")
    return array


def read_index(folder: Path) -> tuple[CounterfactualIndex | None, int | None]:
    """The index of a folder, None if it has none; and the number of images that are done, None if all are."""
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
    """Writes the rows of a folder in order, from where an earlier process stopped. In the end, call `close`.

    `fence` is taken before the first write: after another process has taken it, nothing more is written. Several
    processes may write together: each opens the folder after the first has, and writes rows of its own. Only the first
    notes how many are done, and has the fence.
    """

    def __init__(
        self, folder: Path, index: CounterfactualIndex, fence: Fence | None = None, processes: Processes = ALONE
    ):
        self.folder, self.index, self.done, self.finished = folder, index, 0, False
        self.fence, self.processes = fence, processes
        self._columns: list[_Column] = []
        found, done = read_index(folder)
        foreign = found.mismatch(asdict(index)) if found else None
        if foreign:
            raise InputError(f"{printable(folder)} {foreign}; delete it or choose another `out`")
        if found is None and folder.is_dir() and holds_files(folder):
            reason = f"{printable(folder)} is not empty and holds no transported images"
            raise InputError(f"{reason}; choose another `out`")
        self.finished = found is not None and done is None
        if self.finished:
            self.done = index.images
            if processes.first:
                (folder / "progress.json").unlink(missing_ok=True)
            return
        self.done = done or 0
        if not processes.first and found is None:
            remedy = "give an `out` that all machines share"
            raise InputError(f"{printable(folder)} was made by the first process and is not here; {remedy}")
        self._open(is_new=found is None)

    def _open(self, is_new: bool) -> None:
        make_folder(self.folder)
        if is_new:
            self._write_progress()
        try:
            for name, kind in self.index.arrays.items():
                self._columns.append(_Column(self.folder / f"{name}.npy", *kind))
        except OSError as error:
            self.close()
            if not self.done:  # free the space that was reserved in vain
                shutil.rmtree(self.folder, ignore_errors=True)
            needed = sum(kind.itemsize * math.prod(shape) for kind, shape in self.index.arrays.values())
            found = f"{printable(self.folder)} cannot hold the {format_size(needed)} of the transported images"
            raise InputError(f"{found} ({error.strerror}); free some space or choose another `out`") from error
        if any(column.is_new for column in self._columns):
            self.done = 0

    def append(self, first: int, images: np.ndarray, winner: np.ndarray, losses: np.ndarray) -> None:
        """Writes the rows of the next images, from number `first`. They count as done after `save`."""
        assert first == self.done, "rows come in order, and none follow rows that could not be written"
        self.write(first, images, winner, losses)
        self.done += len(images)

    def write(self, first: int, images: np.ndarray, winner: np.ndarray, losses: np.ndarray) -> None:
        """Writes the rows of images from number `first`, in any order; set `done` when none before it are missing."""
        self._require_held()
        try:
            for column, rows in zip(self._columns, (images, winner, losses), strict=True):
                column.write(first, rows)
        except OSError as error:
            remedy = "free some space and repeat the command to continue"
            raise InputError(f"{printable(self.folder)} could not be written ({error.strerror}); {remedy}") from error

    def save(self) -> None:
        """Makes the rows so far permanent: a process that is killed later does not lose them."""
        with self.processes.together():  # all rows are on the disk before they are counted
            self._require_held()
            for column in self._columns:
                os.fsync(column.file.fileno())
        if self.processes.first:
            self._write_progress()

    def finish(self) -> None:
        """Completes the folder."""
        assert self.done == self.index.images
        self.save()
        if not self.processes.first:
            return
        write_atomically(self.folder / "index.json", json.dumps(asdict(self.index), indent=2).encode())
        (self.folder / "progress.json").unlink()

    def close(self) -> None:
        """Closes the files."""
        for column in self._columns:
            column.file.close()
        self._columns = []

    def _require_held(self) -> None:
        if self.fence:
            self.fence.require_held()

    def _write_progress(self) -> None:
        content = {**asdict(self.index), "done": self.done}
        write_atomically(self.folder / "progress.json", json.dumps(content, indent=2).encode())


class _Column:
    """An array file of its final size, whose rows are written one after the other."""

    def __init__(self, path: Path, kind: np.dtype[Any], shape: tuple[int, ...]):
        try:
            array, self.is_new = _mapped(path, kind, shape), False
        except (OSError, ValueError):  # missing or damaged
            array, self.is_new = np.lib.format.open_memmap(path, "w+", kind, shape), True
        self.start, self.row_bytes = array.offset, array.strides[0]
        # Plain writes, not through the map: when the disk is full, the system kills a process that writes to a map.
        self.file = path.open("r+b", buffering=0)
        try:
            if self.is_new:
                self._reserve(array)
        except OSError:
            self.file.close()
            raise

    def _reserve(self, array: np.ndarray) -> None:
        """Takes the room on the disk now: a full disk is found before the work, not hours into it."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.file.fileno(), self.start, array.nbytes)
        else:
            for row in range(len(array)):
                self.write(row, np.zeros_like(array[:1]))

    def write(self, first: int, rows: np.ndarray) -> None:
        """Writes the rows from number `first`."""
        self.file.seek(self.start + first * self.row_bytes)
        content = np.ascontiguousarray(rows).data.cast("B")
        while content:
            content = content[self.file.write(content) :]
