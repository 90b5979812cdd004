"""The fencing number of a folder: a process that was believed dead cannot write over its successor.

A lock alone is not enough on a cluster. A node that is cut off is given up and its run starts elsewhere, while the old
process still lives; and not every network file system shares locks. So each process that opens a folder for writing
takes the next number, and compares it before every write: after a newer one was taken, the older process ends.
"""

import os
import secrets
import socket
from pathlib import Path

from filelock import FileLock, Timeout

from tcm.errors import InputError, printable
from tcm.training.files import write_atomically

FILE = ".fence.lock"  # a name that does not count as content of a folder
PATIENCE = 120.0  # seconds: network file systems release the locks of a dead node within 90


class Fence:
    """The right to write to a folder, until another process takes it."""

    def __init__(self, folder: Path):
        """Takes the next number of the folder, which must exist."""
        self.folder, self.file = folder, folder / FILE
        last = self._content().split(" ")[0]
        number = int(last) + 1 if last.isdecimal() else 1
        # The token tells holders apart whose number is the same: after damage, or without locks at the same moment.
        self.holder = f"{number} {secrets.token_hex(4)} process {os.getpid()} on {socket.gethostname()}"
        write_atomically(self.file, self.holder.encode())

    def _content(self) -> str:
        try:
            return self.file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    @property
    def held(self) -> bool:
        """Whether no other process has taken the folder since."""
        return self._content() == self.holder

    def require_held(self) -> None:
        """An error if another process has taken the folder since."""
        if not self.held:
            newer = printable(" ".join(self._content().split(" ")[2:]) or "another process")
            found = f"{printable(self.folder)} was taken over by {newer}, because this process was believed dead"
            raise InputError(f"{found}; it writes nothing more and ends: look at the newer one")


def take_over(folder: Path, seconds: float = PATIENCE) -> None:
    """Ends the right of an earlier process to write to the folder, and waits until its lock is released.

    For a process that continues the work of one that is believed dead.
    """
    if not (folder / ".lock").exists():
        return
    Fence(folder)
    try:
        FileLock(folder / ".lock", thread_local=False).acquire(timeout=seconds, poll_interval=0.2).lock.release()
    except Timeout as error:
        found = f"{printable(folder)} is still locked by an earlier process after {seconds:.0f} s"
        raise InputError(f"{found}; end it and repeat the command to continue") from error
