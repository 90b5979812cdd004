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


def read_all(
    read: Callable[[Item], Result], items: Sequence[Item], title: str, *, quiet: bool = False
) -> Generator[Result]:
    """read(item) of every item, in the order of the items, computed in threads while progress is shown."""
    # Threads, not processes: Pillow and the hashes release the GIL.
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="read")
    coming = iter(items)
    pending: deque[Future[Result]] = deque(pool.submit(read, item) for item in islice(coming, IN_FLIGHT))
    try:
        with ProgressDisplay(title, len(items), unit="image", quiet=quiet) as display:
            for done in range(1, len(items) + 1):
                yield pending.popleft().result()
                pending.extend(pool.submit(read, item) for item in islice(coming, 1))
                display.update(done)
    finally:
        pool.shutdown(cancel_futures=True)
