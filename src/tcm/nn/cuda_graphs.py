"""CUDA graphs: the work of a function is recorded once and then started with one call."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Recorder:
    """Calls functions of tensors. While it is `on`, each becomes a CUDA graph for every shape of its arguments.

    A fast GPU otherwise waits for Python to launch small kernels one by one. A function must do the same work whatever
    the values are, may change other tensors in place only, and returns a tensor or a tuple of tensors.
    """

    def __init__(self) -> None:
        self.on = False
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor], object]] = {}
        self._pool: Any = None

    def __call__(self, name: Hashable, function: Callable[..., T], *inputs: Tensor) -> T:
        """function(*inputs). The first call of a name and shape runs as usual, the second is recorded."""
        if not self.on:
            return function(*inputs)
        key = (name, *(tensor.shape for tensor in inputs))
        if key not in self._graphs:
            if key not in self._seen:  # the first call initialises libraries, which must not be recorded
                self._seen.add(key)
                return function(*inputs)
            self._graphs[key] = self._record(function, inputs)
        graph, places, outputs = self._graphs[key]
        for place, tensor in zip(places, inputs, strict=True):
            place.copy_(tensor)
        graph.replay()
        return copied(outputs)  # pyright: ignore[reportReturnType]

    def _record(
        self, function: Callable[..., object], inputs: tuple[Tensor, ...]
    ) -> tuple[torch.cuda.CUDAGraph, list[Tensor], object]:
        # All graphs share one pool of memory, so one may overwrite the results of another: they are copied.
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        places = [tensor.clone() for tensor in inputs]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            outputs = function(*places)
        return graph, places, outputs


def copied(found: object) -> object:
    """A copy of a tensor or a tuple of tensors."""
    if isinstance(found, Tensor):
        return found.clone()
    assert isinstance(found, tuple)
    parts = [part.clone() for part in found]
    return found._make(parts) if hasattr(found, "_make") else tuple(parts)  # pyright: ignore
