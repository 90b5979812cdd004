"""Whether other machines see a folder: a file that a first tiny job must find."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tcm.errors import InputError, printable


@contextmanager
def token_file(folder: Path) -> Iterator[Path]:
    """A small file in the folder, with a name that no other machine has by chance."""
    file = folder / f".shared-{secrets.token_hex(4)}.tmp"
    file.write_bytes(b"")
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def not_shared(folder: Path, machine: str) -> InputError:
    """The error if a machine does not see the folder."""
    found = f"{printable(folder)} is not shared with {printable(machine)}, which runs jobs"
    return InputError("out", f"{found}; choose a folder that all machines of the cluster see under this path")
