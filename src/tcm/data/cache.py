"""Folders that appear whole or not at all, and small notes beside them."""

import errno
import os
import platform
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tcm.errors import InputError, printable

ON_WINDOWS = os.name == "nt"
UNFINISHED = "unfinished"  # the subfolder of the cache with work that was interrupted
KEPT_DAYS = 30  # without a change, after which unfinished work is removed


@contextmanager
def atomic_folder(folder: Path, is_same: Callable[[Path, Path], bool]) -> Iterator[Path]:
    """A temporary folder to write into. It is renamed to `folder` when the block ends, and removed if it fails.

    A `folder` that exists by then is replaced, unless `is_same(temporary, folder)`.
    """
    cache = folder.parent
    temporary = cache / f"{_prefix()}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with _explained(cache):
            temporary.mkdir(parents=True)
            _remove_abandoned(cache)
            yield temporary
            publish(temporary, folder, is_same)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def lasting_folder(cache: Path, name: str, title: str, quiet: bool = False) -> Iterator[Path]:
    """A folder for unfinished work, which the next process with this name finds as this one left it.

    Only one process of this machine has it at a time; the others wait, with one line that names `title`. When the block
    ends, the folder is removed. If it fails, or if its process is killed, the folder stays.
    """
    # Not every network file system shares locks, so machines do not share unfinished folders.
    folder = cache / UNFINISHED / f"{platform.node()}-{name}"
    with _explained(cache):
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(cache)
        _remove_unused(folder.parent)
        with _lock(folder.with_name(f"{folder.name}.lock"), title, quiet):
            folder.mkdir(exist_ok=True)  # the process that had the lock has removed it
            yield folder
            shutil.rmtree(folder, ignore_errors=True)


def publish(temporary: Path, folder: Path, is_same: Callable[[Path, Path], bool]) -> None:
    """Renames a complete folder to `folder`, after its files are on the disk.

    A `folder` that exists by then is replaced, unless `is_same(temporary, folder)`.
    """
    for file in temporary.iterdir():
        _sync(file)
    _sync(temporary)
    _rename(temporary, folder, is_same)
    _sync(folder.parent)


def read_note(cache: Path, name: str) -> str | None:
    """The text of a note, None if there is none."""
    try:
        return (cache / "notes" / name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def write_note(cache: Path, name: str, text: str) -> None:
    """Saves a note, if the cache can be written: notes only save time."""
    note = cache / "notes" / name
    with suppress(OSError):
        note.parent.mkdir(exist_ok=True)
        temporary = note.with_name(f"{name}-{secrets.token_hex(4)}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(note)


@contextmanager
def _explained(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = "free some space or set `data.cache` to another folder"
        raise InputError(f"cannot write the image cache {printable(cache)}: {reason}; {remedy}") from error


@contextmanager
def _lock(file: Path, title: str, quiet: bool) -> Iterator[None]:
    """Inside the block no other process of this machine has the lock. That of a killed process is free."""
    from filelock import FileLock, Timeout  # takes 0.15 s to import

    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if not quiet:
            print(f"Another process is {title}; waiting for it. Its lock is {printable(file)}.", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _remove_unused(unfinished: Path) -> None:
    """Removes unfinished folders that no process has written to for some weeks."""
    for folder in filter(Path.is_dir, unfinished.iterdir()):
        with suppress(OSError):
            newest = max(entry.stat().st_mtime for entry in (folder, *folder.iterdir()))
            if newest < time.time() - KEPT_DAYS * 24 * 60 * 60:
                shutil.rmtree(folder, ignore_errors=True)


def _rename(temporary: Path, folder: Path, is_same: Callable[[Path, Path], bool]) -> None:
    while True:
        try:
            temporary.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        # Another process may have written the same folder first and be reading it. One that differs is damaged or old.
        if is_same(temporary, folder):
            return
        aside = temporary.with_name(f"{temporary.name}-old")
        with suppress(FileNotFoundError):
            folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _prefix() -> str:
    return f".packing-{platform.node()}-"


def _remove_abandoned(cache: Path) -> None:
    """Removes temporary folders of processes on this machine that no longer run, such as killed ones."""
    for folder in cache.glob(f"{_prefix()}*"):
        process = folder.name.removeprefix(_prefix()).split("-")[0]
        if process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if ON_WINDOWS:  # os.kill would end the process there; a folder of unknown state stays
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as another user
        return True
    return True


def _sync(path: Path) -> None:
    """Waits until a file or folder is on the disk; Windows does so for writable files only."""
    if ON_WINDOWS and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if ON_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
