"""CUDA graphs: what a GPU does many times over is recorded once and then started with one call."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Recorder:
    """Runs functions of tensors; switched on, each becomes a CUDA graph for every shape of its arguments.

    Launched one by one, small kernels keep a fast GPU waiting for Python. A function that is recorded must do the
    same work whatever the values are, and must reach other tensors only in place. It returns a tensor or a tuple of
    tensors.
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
            if key not in self._seen:  # libraries set themselves up here, which no recording may hold
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
        # All graphs share one pool of memory, so any of them may write where the results of another lie.
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
