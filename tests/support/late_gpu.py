"""A stand-in for a GPU that works late: what is sent to its streams is done by threads of their own, some time after.

It has what `tcm.data.feeding` uses of `torch.cuda`, with the documented meaning of streams and events. So a buffer that
is overwritten while a copy or the training stream still reads it gives wrong rows here, as it would on a GPU.
"""

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class LateStream:
    """Does what it is given in order, each thing after a random delay of up to `delay` seconds."""

    def __init__(self, delay: float):
        self.work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.delay, self.random = delay, random.Random(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            do = self.work.get()
            time.sleep(self.delay * self.random.random())
            do()

    def wait_event(self, event: "LateEvent") -> None:
        recorded = event.recorded
        self.work.put(lambda: recorded is None or recorded.wait(10))

    def synchronize(self) -> None:
        done = threading.Event()
        self.work.put(done.set)
        assert done.wait(20)


class LateEvent:
    """Happens when the stream comes to where it was last recorded. Who waits does so for the record at that time."""

    recorded: threading.Event | None = None

    def record(self, stream: LateStream) -> None:
        recorded = self.recorded = threading.Event()
        stream.work.put(recorded.set)

    def synchronize(self) -> None:
        assert self.recorded is None or self.recorded.wait(20)


class LateGPU(TorchFunctionMode):
    """Within this context, tensors on "cuda" are on the CPU, and copies to them are done by the current stream."""

    def __init__(self, training: float = 0.002, copying: float = 0.002):
        super().__init__()
        self.training, self.side = LateStream(training), LateStream(copying)
        self.current = self.training

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: tuple[Any, ...] = (), options: Any = None
    ) -> Any:
        """What the function returns; copies that need not be waited for are put off."""
        options = dict(options or {})
        if function is torch.empty:
            options = {name: value for name, value in options.items() if name not in ("device", "pin_memory")}
        if function is Tensor.copy_ and options.get("non_blocking"):
            to, source = arguments
            self.current.work.put(lambda: to.copy_(source))
            return to
        return function(*arguments, **options)

    @contextmanager
    def stream(self, stream: LateStream) -> Iterator[None]:
        """Makes this the current stream."""
        before, self.current = self.current, stream
        yield
        self.current = before

    def replace(self, patch: Any) -> "LateGPU":
        """Puts this in the place of `torch.cuda`, as far as feeding uses it."""
        patch.setattr(Tensor, "record_stream", lambda tensor, stream: None)
        patch.setattr(torch.cuda, "Stream", lambda device: self.side)
        patch.setattr(torch.cuda, "Event", LateEvent)
        patch.setattr(torch.cuda, "stream", self.stream)
        patch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        return self
