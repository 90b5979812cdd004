"""Ctrl-C and SIGTERM as a request to stop after the current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StopRequest:
    """Whether a signal asked for a stop, and which."""

    requested = False
    number = 0


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turns the first Ctrl-C or SIGTERM into a request that a loop can read; a second one ends the loop at once.

    Python delivers signals only to the main thread. In other threads, as in a server that trains, there are none.
    """
    request = StopRequest()

    def ask(number: int, frame: object) -> None:
        if request.requested:
            raise KeyboardInterrupt
        request.requested, request.number = True, number

    is_main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM) if is_main}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
