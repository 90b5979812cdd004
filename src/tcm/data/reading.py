"""Many files read in parallel, in order, with progress shown."""

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from tcm.progress import ProgressDisplay

Item = TypeVar("Item")
Result = TypeVar("Result")

WORKERS = min(32, os.cpu_count() or 1)
# Enough that no thread waits, few enough that the results take little memory.
IN_FLIGHT = 4 * WORKERS
AT_ONCE = 16  # items that a thread takes together: handing them over one by one takes as long as reading a small file


def read_all(
    read: Callable[[Item], Result],
    items: Sequence[Item],
    title: str,
    *,
    at_once: int = AT_ONCE,
    done: int = 0,
    quiet: bool = False,
) -> Generator[Result]:
    """read(item) of every item, in the order of the items, computed in threads while progress is shown.

    A thread takes `at_once` items together, and 4 times as many for each thread may be in memory: give a small number
    if results are large. `done` items were read earlier; progress counts them.
    """

    def read_some(start: int) -> list[Result]:
        return [read(item) for item in items[start : start + at_once]]

    # Threads, not processes: Pillow and the hashes release the GIL.
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="read")
    coming = iter(range(0, len(items), at_once))
    pending: deque[Future[list[Result]]] = deque(pool.submit(read_some, start) for start in islice(coming, IN_FLIGHT))
    try:
        with ProgressDisplay(title, done + len(items), unit="image", done=done, quiet=quiet) as display:
            while pending:
                found = pending.popleft().result()
                pending.extend(pool.submit(read_some, start) for start in islice(coming, 1))
                yield from found
                done += len(found)
                display.update(done)
    finally:
        pool.shutdown(cancel_futures=True)
