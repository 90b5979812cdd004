"""The folder that an import writes: images by class, and a note of what is done, so that a killed import continues."""

import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tcm.data.imports.shards import Shard
from tcm.errors import InputError, printable

NOTE, TEMPORARY, LOCK = ".tcm-import.json", ".tcm-import.tmp", ".tcm-import.lock"
FORMAT = 1
LISTED = 20  # images that are left out and named


@dataclass
class Progress:
    """What the note holds: what is imported, and what is done of it."""

    settings: dict[str, Any]
    shards: dict[str, int]  # the size of each shard by its name
    done: list[str] = field(default_factory=list)  # the names of finished shards
    images: dict[str, int] = field(default_factory=dict)  # how many each folder has, of finished shards
    left_out: int = 0
    first_left_out: list[list[str]] = field(default_factory=list)  # shard, key, reason
    format: int = FORMAT


class ImportFolder:
    """A folder that is being filled. Only one process at a time opens it."""

    def __init__(self, out: Path, settings: dict[str, Any], shards: Sequence[Shard]):
        self.out, self.note = out, out / NOTE
        self.progress = Progress(settings, {shard.name: shard.path.stat().st_size for shard in shards})
        self._made: set[str] = set()
        self._counts, self._left_out = Counter[str](), list[list[str]]()

    @contextmanager
    def opened(self) -> Iterator["ImportFolder"]:
        """Inside the block, other processes are kept out. Continues what an earlier process has begun."""
        with _explained(self.out):
            if self._begun and not self.note.exists():
                raise InputError("out", f"{self.out} is not empty and holds no import; choose a new or empty folder")
            self.out.mkdir(parents=True, exist_ok=True)
            try:
                lock = FileLock(self.out / LOCK).acquire(blocking=False)
            except Timeout as error:
                remedy = "wait for it or choose another folder"
                raise InputError("out", f"{self.out} is in use by another process; {remedy}") from error
            with lock:
                if self._begun:
                    self._continue()
                else:  # of an import without any image, other settings may make more
                    self._write_note()
                yield self

    @property
    def _begun(self) -> bool:
        return self.out.is_dir() and not {*os.listdir(self.out)} <= {NOTE, TEMPORARY, LOCK}

    def _continue(self) -> None:
        try:
            found = Progress(**json.loads(self.note.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise InputError("out", f"{self.note} is damaged; import into a new folder") from error
        shards, remedy = self.progress.shards, "repeat its command or choose another folder"
        changed = {name for name, size in shards.items() if found.shards.get(name) != size}
        if (found.format, found.settings) != (self.progress.format, self.progress.settings):
            raise InputError("out", f"{self.out} holds an import of other settings; {remedy}")
        if found.shards.keys() != shards.keys() or changed & {*found.done}:
            raise InputError("out", f"{self.out} holds an import of other shards; {remedy}")
        self.progress = found
        if changed:  # one that was damaged and is there again
            self._remove_images(changed)
            found.shards = shards
            self._write_note()

    def _remove_images(self, shards: Collection[str]) -> None:
        for where, _, files in os.walk(self.out):
            for name in files:
                if "@" in name and name.partition("@")[0] in shards:
                    os.remove(os.path.join(where, name))

    def is_done(self, shard: Shard) -> bool:
        """Whether all images of the shard are there."""
        return shard.name in self.progress.done

    def add(self, folder: str, name: str, content: bytes) -> None:
        """Writes an image, whole or not at all; what an earlier process has written stays."""
        self._counts[folder] += 1
        path = os.path.join(self.out, folder, name)
        with suppress(FileNotFoundError):
            if os.path.getsize(path) == len(content):  # a machine that stopped may have left an empty file
                return
        if folder not in self._made:
            (self.out / folder).mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
        temporary = self.out / TEMPORARY
        temporary.write_bytes(content)
        os.replace(temporary, path)

    def leave_out(self, shard: Shard, key: str, reason: str) -> None:
        """Notes that an image is left out, and why."""
        self._left_out.append([shard.path.name, key, reason])

    def finish(self, shard: Shard) -> None:
        """Notes that the shard is done."""
        progress = self.progress
        progress.done.append(shard.name)
        progress.images = dict(Counter(progress.images) + self._counts)
        progress.left_out += len(self._left_out)
        progress.first_left_out = (progress.first_left_out + self._left_out)[:LISTED]
        self._counts, self._left_out = Counter(), []
        if hasattr(os, "sync"):  # the images must be on the disk before the note says so
            os.sync()
        self._write_note()

    def _write_note(self) -> None:
        temporary = self.out / TEMPORARY
        temporary.write_text(json.dumps(asdict(self.progress)), encoding="utf-8")
        os.replace(temporary, self.note)


@contextmanager
def _explained(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or printable(error)
        remedy = "free some space or choose another folder, and repeat the command"
        raise InputError("out", f"{out} cannot be written ({reason}); {remedy}") from error
