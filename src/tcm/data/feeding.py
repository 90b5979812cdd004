"""Rows that do not fit on the device: gathered ahead of time in host memory and copied while the device computes.

Threads gather the rows of the next steps from memory-mapped files into a ring of buffers. On a GPU the buffers are
pinned, so that a side stream copies them while the training stream computes. Only the main thread makes CUDA calls,
because a CUDA call of another thread can break the recording of a CUDA graph.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

THREADS = 8  # several even for one step: where files are larger than the host's memory, threads wait for the disk
PIECES = 4  # tasks for the rows of one step
MEMORY = 2**29  # bytes of all slots in host memory, and again on a GPU, unless FEWEST slots take more
MOST, FEWEST = 8, 4  # slots

Chosen = Callable[[int], list[Tensor]]  # the row numbers that a step needs of every part, in host memory


class Slot:
    """Room for the rows of one step. This form is for CPUs, which read the rows where the threads gather them."""

    def __init__(self, parts: list[Tensor], most: int, pinned: bool = False):
        self.buffers = [torch.empty((most, *part.shape[1:]), dtype=part.dtype, pin_memory=pinned) for part in parts]
        self.step: int | None = None
        self.counts = [0] * len(parts)
        self.gathers: list[Future[None]] = []
        self.sent = False

    @property
    def gathered(self) -> bool:
        """Whether all rows have been gathered without an error."""
        return all(future.done() and future.exception() is None for future in self.gathers)

    def clear(self) -> None:
        """Waits until the buffers may be overwritten."""
        for future in self.gathers:
            future.cancel()
        wait(self.gathers)

    def send(self) -> None:
        """Starts to copy the gathered rows to the device."""

    def received(self) -> list[Tensor]:
        """The rows on the device: as many as were gathered, then some without meaning."""
        return self.buffers

    def release(self) -> None:
        """Says that all work with the received rows has been started."""


class GPUSlot(Slot):
    """Room for the rows of one step in pinned memory and on a GPU.

    `stream` copies. What it must wait for, and what waits for it, are events: no call but `clear` waits in the host.
    """

    def __init__(self, parts: list[Tensor], most: int, device: torch.device, stream: torch.cuda.Stream):
        super().__init__(parts, most, pinned=True)
        self.device, self.stream = device, stream
        self.rows = [torch.empty(buffer.shape, dtype=buffer.dtype, device=device) for buffer in self.buffers]
        for rows in self.rows:
            rows.record_stream(stream)  # when the slot is deleted, the memory waits for the copies of this stream
        self.copied, self.read = torch.cuda.Event(), torch.cuda.Event()
        self.release()  # the new memory may have been another tensor's, with which the training stream still works

    def clear(self) -> None:
        """Waits until the buffers may be overwritten: no thread fills them, and the last copy has read them."""
        super().clear()
        self.copied.synchronize()

    def send(self) -> None:
        """Starts to copy the gathered rows, as soon as the training stream has read the former ones."""
        self.stream.wait_event(self.read)
        with torch.cuda.stream(self.stream):
            for rows, buffer, count in zip(self.rows, self.buffers, self.counts, strict=True):
                rows[:count].copy_(buffer[:count], non_blocking=True)
        self.copied.record(self.stream)

    def received(self) -> list[Tensor]:
        """The rows on the GPU. What the training stream does from now on waits for the copy."""
        torch.cuda.current_stream(self.device).wait_event(self.copied)
        return self.rows

    def release(self) -> None:
        """Says that the training stream has read the rows as soon as it comes here."""
        self.read.record(torch.cuda.current_stream(self.device))


def slots_for(parts: list[Tensor], most: int, device: torch.device) -> list[Slot]:
    """Slots for at most `most` rows of each part in a step, as many as MEMORY allows."""
    size = most * sum(part[0].nbytes for part in parts)
    count = min(max(MEMORY // size, FEWEST), MOST)
    if device.type != "cuda":
        return [Slot(parts, most) for _ in range(count)]
    stream = torch.cuda.Stream(device)
    return [GPUSlot(parts, most, device, stream) for _ in range(count)]


class Feeder:
    """The chosen rows of tensors in host memory, step after step, on the device.

    Step s has slot s modulo n, the number of slots. Its call starts threads for the rows of step s + n - 2, in the slot
    of step s - 2, and the copy of step s + 1. So no call waits for a copy, unless the GPU is n steps behind.
    """

    def __init__(self, parts: list[Tensor], most: int, device: torch.device):
        """A step takes at most `most` rows of each of the `parts`, which are contiguous and not on the device."""
        self.arrays = [part.numpy() for part in parts]
        self.slots = slots_for(parts, most, device)
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="gather")

    @contextmanager
    def rows(self, step: int, chosen: Chosen) -> Iterator[list[Tensor]]:
        """The rows of this step, for as long as the context lasts. `chosen` must be a function of the step alone.

        Behind them, up to `most`, each tensor has rows without meaning. An error of a thread is raised here.
        """
        for wanted in range(step, step + len(self.slots) - 1):
            if self._slot(wanted).step != wanted:
                self._fill(self._slot(wanted), wanted, chosen(wanted))
        slot, following = self._slot(step), self._slot(step + 1)
        self._send(slot)
        if following.gathered:
            self._send(following)
        try:
            yield slot.received()
        finally:
            slot.release()

    def _slot(self, step: int) -> Slot:
        return self.slots[step % len(self.slots)]

    def _fill(self, slot: Slot, step: int, chosen: list[Tensor]) -> None:
        slot.clear()
        slot.step, slot.sent, slot.counts = step, False, [len(rows) for rows in chosen]
        work = [
            (array, rows.numpy(), buffer.numpy())
            for array, rows, buffer in zip(self.arrays, chosen, slot.buffers, strict=True)
        ]
        slot.gathers = [self.pool.submit(gather_piece, work, number) for number in range(PIECES)]

    def _send(self, slot: Slot) -> None:
        if not slot.sent:
            for future in slot.gathers:
                future.result()
            slot.send()
            slot.sent = True


def gather_piece(work: list[tuple[np.ndarray, np.ndarray, np.ndarray]], number: int) -> None:
    """Copies one of PIECES pieces of the chosen rows of each array to the start of its buffer.

    NumPy does it with one memcpy per row, without the interpreter lock. `torch.index_select` takes seven times as long.
    """
    for array, rows, buffer in work:
        piece = slice(len(rows) * number // PIECES, len(rows) * (number + 1) // PIECES)
        if piece.start < piece.stop:
            assert 0 <= rows[piece].min() <= rows[piece].max() < len(array), "there is no such row"
            # With the mode "raise", NumPy would copy twice.
            np.take(array, rows[piece], axis=0, out=buffer[piece], mode="clip")
