"""Ctrl-C while the program loads or ends: one line, at any moment. It imports nothing heavy."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tcm.cli.messages import is_first_process

STOPPED = "stopped; repeat the command to continue"


def end_at_once(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """Ends the process with one line and the exit code of the signal.

    An exception in the middle of an import could end in anything. While modules load nothing can be lost, so the
    process need not clean up.
    """
    if is_first_process():
        os.write(2, f"{STOPPED}\n".encode())
    os._exit(128 + number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, Ctrl-C is a KeyboardInterrupt again: files that are being written are cleaned up."""
    if signal.getsignal(signal.SIGINT) is not end_at_once:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, end_at_once)
