"""Folders that are whole or not there, and small notes beside them."""

import errno
import os
import platform
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tcm.errors import InputError, printable


@contextmanager
def whole_or_nothing(folder: Path, is_same: Callable[[Path, Path], bool]) -> Iterator[Path]:
    """A temporary sibling to write into. It takes the name `folder` if the block ends well, and vanishes if not.

    If `is_same(temporary, folder)` when the block ends, the folder that stands there stays.
    """
    cache = folder.parent
    temporary = cache / f"{_prefix()}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        temporary.mkdir(parents=True)
        _remove_left_over(cache)
        yield temporary
        for file in temporary.iterdir():
            _sync(file)
        _sync(temporary)
        _publish(temporary, folder, is_same)
        _sync(cache)
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = "make room or give another folder with --data.cache"
        raise InputError(f"cannot write the image cache {printable(cache)}: {reason}; {remedy}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_note(cache: Path, name: str) -> str | None:
    """The text of a note, None if there is none."""
    try:
        return (cache / "notes" / name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def write_note(cache: Path, name: str, text: str) -> None:
    """Keeps a note. A cache that cannot be written to keeps none: notes only save time."""
    note = cache / "notes" / name
    with suppress(OSError):
        note.parent.mkdir(exist_ok=True)
        temporary = note.with_name(f"{name}-{secrets.token_hex(4)}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(note)


def _publish(temporary: Path, folder: Path, is_same: Callable[[Path, Path], bool]) -> None:
    while True:
        try:
            temporary.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        # Another process may have finished the same first and be reading it. What differs is damaged or stale.
        if is_same(temporary, folder):
            return
        aside = temporary.with_name(f"{temporary.name}-old")
        with suppress(FileNotFoundError):
            folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _prefix() -> str:
    return f".packing-{platform.node()}-"


def _remove_left_over(cache: Path) -> None:
    """Removes the temporary folders of processes of this machine that ended without doing so, such as killed ones."""
    for folder in cache.glob(f"{_prefix()}*"):
        process = folder.name.removeprefix(_prefix()).split("-")[0]
        if process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # where os.kill can only end a process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives and is another user's
        return True
    return True


def _sync(path: Path) -> None:
    if os.name == "nt":  # which cannot flush a folder, or a file that is open for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
