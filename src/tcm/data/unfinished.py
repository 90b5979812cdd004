"""A store that is being packed. It is on the disk all the time, so that a killed process loses a few seconds of work.

Its folder holds the pixels of all images so far, and a journal with one line per file: path, size and time of change of
the file, hash, and the image's size or the reason why it cannot be read.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

BUFFER = 2**16  # bytes of small images that are written together; larger images are not copied into it
SAVE_EVERY = 1.0  # seconds between two savings, if the disk is fast enough


class PackedFile(NamedTuple):
    """One image file, decoded and resized."""

    pixels: NDArray[np.uint8] | None  # [size, size, 3], None if the file cannot be read
    original_size: tuple[int, int] | None  # width, height
    content: str  # the hash of its bytes, or why there is none
    reason: str | None = None  # why it cannot be read


class UnfinishedStore:
    """The first files of a list as packed images, on disk. Use it as a context manager: leaving saves what is done.

    The order of writing makes the journal true whenever the process or the machine stops: pixels reach the disk before
    the lines that claim them. A thread does this while the next images are decoded.
    """

    def __init__(
        self,
        folder: Path,
        size: int,
        paths: Sequence[str],
        stats: NDArray[np.int64],
        is_readable: Callable[[str], bool],
    ):
        """`stats` [n, 2] are the size and the time of change of each file. What an earlier process left in the folder
        is kept up to the first file that is not the same, or that was not but now `is_readable`."""
        self.folder, self.size, self.paths, self.stats = folder / "store", size, paths, stats
        self.contents: list[str] = []  # of the files so far
        self.sizes: list[tuple[int, int] | None] = []
        self.reasons: dict[int, str] = {}  # of the files that cannot be read, by their number
        self._known_sizes: dict[tuple[int, int], tuple[int, int]] = {}
        self.folder.mkdir(exist_ok=True)
        (self.folder / "index.json").unlink(missing_ok=True)
        self._images, self._journal = map(_opened, (self.folder / "images.npy", folder / "journal.jsonl"))
        _write_header(self._images, 0, size)
        self._start = self._images.tell()
        self._resume(is_readable)
        self._lines: list[str] = []
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="save")
        self._saving: Future[None] | None = None
        self._saved = time.monotonic()

    @property
    def done(self) -> int:
        """The number of files so far."""
        return len(self.contents)

    @property
    def images(self) -> int:
        """The number of images so far: files that could be read."""
        return self.done - len(self.reasons)

    def add(self, found: PackedFile) -> None:
        """The next file of the list."""
        number = self.done
        pixels, size, content, reason = found
        if pixels is not None:
            self._images.write(pixels.data)
        self._note(content, size, reason)
        self._lines.append(json.dumps((self.paths[number], *self.stats[number].tolist(), content, size, reason)))
        if time.monotonic() - self._saved >= SAVE_EVERY and (self._saving is None or self._saving.done()):
            self._save()

    def __enter__(self) -> "UnfinishedStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None or not issubclass(kind, OSError):  # a full disk has no room for the rest
                self._images.seek(0)
                _write_header(self._images, self.images, self.size)
                self._save()
                self._wait()
        finally:
            self._saver.shutdown()
            for file in (self._images, self._journal):
                with suppress(OSError):
                    file.close()

    def _note(self, content: str, size: tuple[int, int] | None, reason: str | None) -> None:
        if reason is not None:
            self.reasons[self.done] = reason
        self.contents.append(content)
        self.sizes.append(self._known_sizes.setdefault(size, size) if size else None)

    def _save(self) -> None:
        self._wait()
        lines, self._lines, self._saved = self._lines, [], time.monotonic()
        self._images.flush()
        self._saving = self._saver.submit(self._write, lines)

    def _wait(self) -> None:
        """Waits for the last saving; raises its error."""
        if self._saving:
            self._saving.result()

    def _write(self, lines: list[str]) -> None:
        os.fsync(self._images.fileno())
        self._journal.write("".join(f"{line}\n" for line in lines).encode())
        self._journal.flush()

    def _resume(self, is_readable: Callable[[str], bool]) -> None:
        """Takes over the lines of the journal that are still true, and forgets the rest."""
        room = (os.fstat(self._images.fileno()).st_size - self._start) // self._row
        ends = 0
        for number, (end, line) in enumerate(_whole_lines(self._journal)):
            if number == len(self.paths) or line[:3] != [self.paths[number], *self.stats[number].tolist()]:
                break
            content, size, reason = line[3:]
            if self.images >= room if size else is_readable(self.paths[number]):
                break
            self._note(content, tuple(size) if size else None, reason)
            ends = end
        for file, end in ((self._journal, ends), (self._images, self._start + self.images * self._row)):
            file.truncate(end)
            file.seek(end)

    @property
    def _row(self) -> int:
        return 3 * self.size**2


def _opened(file: Path) -> BinaryIO:
    file.open("ab").close()  # so that it exists
    return file.open("r+b", buffering=BUFFER)


def _whole_lines(journal: BinaryIO) -> Iterator[tuple[int, list[Any]]]:
    """Where each line ends, and what it says, up to the first that is not whole."""
    end = 0
    for line in journal:
        end += len(line)
        if not line.endswith(b"\n"):
            return
        try:
            yield end, json.loads(line)
        except ValueError:
            return


def _write_header(file: BinaryIO, count: int, size: int) -> None:
    # NumPy leaves room for the first axis to grow, so the header of the final count is as long as that of 0.
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, size, size, 3)}
    np.lib.format.write_array_header_1_0(file, header)
