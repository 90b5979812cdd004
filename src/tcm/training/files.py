"""Files that are written whole or not at all, and folders that one process uses at a time."""

import os
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from tcm.errors import InputError


def write_atomically(file: Path, content: bytes) -> None:
    """Writes the file whole or not at all; a full disk leaves the previous content and one clear line.

    If `file` is a link, the link stays and the file that it points to is replaced.
    """
    target = Path(os.path.realpath(file))
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        if not can_be_replaced(file):
            with file.open("ab") as handle:
                handle.write(content)
            return
        with temporary.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(
            f"{file} could not be written ({error.strerror}); its previous content is unchanged: "
            "free some space and repeat the command to continue"
        ) from error


def can_be_replaced(file: Path) -> bool:
    """Whether a new file may take the place of this one; devices, pipes and standard output are written to instead."""
    is_stream = os.path.abspath(file).startswith(("/dev/std", "/dev/fd/"))  # a plain file where output goes to one
    return not is_stream and (os.path.isfile(file) or not os.path.exists(file))


def make_folder(folder: Path) -> None:
    """Makes the folder unless it exists. Errors name the field `out`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("out", f"{folder} cannot be made ({error.strerror}); choose another folder") from error


def holds_files(folder: Path) -> bool:
    """Whether the folder holds more than locks and the temporary files of killed processes."""
    return any(not (name.startswith(".") and name.endswith((".lock", ".tmp"))) for name in os.listdir(folder))


def lock(folder: Path) -> AcquireReturnProxy:
    """Keeps other processes out of the folder: `with lock(folder):`. The lock of a process that is killed is released.

    Errors name the field `out`.
    """
    try:
        # Any thread may release it, such as the one that collects a forgotten `Run`.
        return FileLock(folder / ".lock", thread_local=False).acquire(blocking=False)
    except Timeout as error:
        found = f"{folder} is in use by another process"
        raise InputError("out", f"{found}; wait for it or choose another folder") from error
    except OSError as error:
        raise InputError("out", f"{folder} cannot be written ({error.strerror}); choose another folder") from error
