"""The processes of one run: who this one is, and what they tell each other."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tcm.errors import InputError, LostProcess
from tcm.nn.divided import gathered_rows, part_of

T = TypeVar("T")
S = TypeVar("S", Tensor, list[int])
TIMEOUT = timedelta(minutes=30)  # until a process that says nothing counts as lost; one that ended is noticed at once
# What PyTorch's errors say when a process is gone.
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out", "NCCL", "gloo")


@dataclass(frozen=True)
class Processes:
    """The processes of a run, as one of them sees them. With one process nothing here does any work."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # the number of this process on its machine, and of its GPU
    group: Any = None  # over which messages between processors go; None: the same as gradients, without GPUs

    @property
    def first(self) -> bool:
        """Whether this process locks, writes, logs and shows progress."""
        return self.rank == 0

    def own(self, batch: S) -> S:
        """The rows of a batch that this process computes."""
        return batch if self.size == 1 else batch[part_of(self.rank, self.size, len(batch))]

    def largest(self, number: int) -> int:
        """The largest of the numbers that all processes give."""
        if self.size == 1:
            return number
        found = torch.tensor(number)
        with self.explain_loss():
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self.group)
        return int(found)

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replaces each tensor by its sum over all processes."""
        if self.size > 1:
            parts = list(tensors)
            total = torch.cat([part.flatten() for part in parts])
            dist.all_reduce(total)
            for part, found in zip(parts, total.split([part.numel() for part in parts]), strict=True):
                part.copy_(found.view(part.shape))

    def gathered(self, own: Tensor, count: int) -> Tensor:
        """The second axis of a tensor, of length `count`, from the parts of it that all processes have."""
        return own if self.size == 1 else gathered_rows(own.transpose(0, 1), count).transpose(0, 1).contiguous()

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make` returns in the first process, for all of them. Its InputErrors are raised in all of them."""
        if self.size == 1:
            return make()
        found: list[T] = []
        with self.together():
            if self.first:
                found = [make()]
        given: list[Any] = found or [None]
        with self.explain_loss():
            dist.broadcast_object_list(given, group=self.group)
        return given[0]

    def first_then_others(self, make: Callable[[], T]) -> T:
        """What `make` returns in this process, called in the first process before the others: they find its files."""
        if self.size == 1:
            return make()
        found: list[T] = []
        for turn in (True, False):
            with self.together():
                if self.first == turn:
                    found.append(make())
        return found[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Ends in all processes at once: if the block raises an InputError in one of them, it does so in all."""
        own: InputError | None = None
        try:
            yield
        except InputError as error:
            if error.everywhere:
                raise
            own = error
        for rank, text in enumerate(self._all(None if own is None else str(own))):
            if text is not None:
                error = own or InputError(text if rank == 0 else f"process {rank}: {text}")
                error.everywhere = self.size > 1
                raise error

    def _all(self, own: Any) -> list[Any]:
        found = [own] * self.size
        if self.size > 1:
            with self.explain_loss():
                dist.all_gather_object(found, own, group=self.group)
        return found

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Overwrites the tensors by those of the first process.

        All processes compute the same, but not always the same last bits: some operations of GPUs add in any order.
        """
        if self.size > 1:
            for tensor in tensors:
                whole = tensor.contiguous()
                dist.broadcast(whole, 0, group=None if tensor.is_cuda else self.group)
                tensor.copy_(whole)

    @contextmanager
    def explain_loss(self) -> Iterator[None]:
        """Turns the errors of a process that is gone into a LostProcess."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not (isinstance(error, dist.DistError) or any(word in str(error) for word in LOST)):
                raise
            found = "another process of this run has ended, or does not answer"
            lost = LostProcess(f"{found}; repeat the command to continue from what was saved last")
            lost.everywhere = True
            raise lost from error


ALONE = Processes()
_current = ALONE


def current_processes() -> Processes:
    """The processes of this run. Before `start_processes`, and in most programs, there is one."""
    return _current


def begin(processes: Processes) -> Processes:
    """Makes these the processes of this run."""
    global _current
    _current = processes
    return processes
