"""The network of a run as a graph of tensor operations, without what only training needs."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from tcm.data.augment import as_input
from tcm.methods.method import Method

BATCH_DIM = "batch"


class Preprocessing(NamedTuple):
    """From stored images, uint8 [n, size, size, 3], to what a network takes: their centre, as floats in [0, 1]."""

    size: int
    crop: int

    def __call__(self, images: Tensor) -> Tensor:
        """Float images [n, 3, crop, crop] in [0, 1]."""
        corner = (self.size - self.crop) // 2
        inner = slice(corner, corner + self.crop)
        return as_input(images[:, inner, inner])


class Probabilities(nn.Module):
    """Class probabilities [n, classes] of images [n, 3, crop, crop] in [0, 1]: what a classifier's file computes."""

    def __init__(self, method: Method, fast: bool):
        super().__init__()
        self.method, self.fast = method, fast

    def forward(self, images: Tensor) -> Tensor:
        """The probabilities; normalisation is a part of the backbone."""
        logits = self.method.predict_fast(images) if self.fast else self.method.predict(images)
        return logits.float().softmax(dim=1)


class AllAnswers(nn.Module):
    """Everything that the run's model can answer. What this does not use, only training needs."""

    def __init__(self, method: Method):
        super().__init__()
        self.method = method

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Logits, features and the logits of all variants."""
        found, fast = self.method.answer(images), self.method.answer_fast(images)
        return found.logits, found.features, *found.variants.values(), fast.logits, fast.features


class ExportedNetwork(nn.Module):
    """A network with its input in the form that a file takes."""

    def __init__(self, network: nn.Module, preprocessing: Preprocessing, included: bool):
        super().__init__()
        self.network, self.preprocessing, self.included = network, preprocessing, included

    def forward(self, images: Tensor) -> Any:
        """The network's output for stored images if the preprocessing is included, otherwise for its own input."""
        return self.network(self.preprocessing(images) if self.included else images)

    def input_of(self, stored: Tensor) -> Tensor:
        """What `forward` takes for stored images, uint8 [n, size, size, 3]."""
        return stored if self.included else self.preprocessing(stored).contiguous()

    def example(self, count: int = 2) -> Tensor:
        """An input of noise: uint8 [count, size, size, 3], or floats [count, 3, crop, crop]."""
        size = self.preprocessing.size
        generator = torch.Generator().manual_seed(0)
        stored = torch.randint(256, (count, size, size, 3), dtype=torch.uint8, generator=generator)
        return self.input_of(stored)


def traced(network: ExportedNetwork) -> ExportedProgram:
    """The network as a graph for any number of images. Parameters and buffers without an effect are left out."""
    network.eval().requires_grad_(False)
    example, any_number = network.example(), {0: Dim(BATCH_DIM, min=1)}
    with torch.no_grad(), without_autocast(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks on its own passes
        graph = export(network, (example,), dynamic_shapes=(any_number,)).module()
        assert isinstance(graph, torch.fx.GraphModule)
        strip(graph)
        return export(graph, (example,), dynamic_shapes=(any_number,))


def strip(graph: torch.fx.GraphModule) -> None:
    """Removes what the output does not depend on, and the places in source files that nodes come from."""
    graph.graph.eliminate_dead_code()
    for node in graph.graph.nodes:
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"):
            node.meta.pop(key, None)
    graph.recompile()
    used = {node.target for node in graph.graph.nodes if node.op == "get_attr"}
    for name in [name for name, _ in (*graph.named_parameters(), *graph.named_buffers())]:
        if name not in used:
            owner, _, last = name.rpartition(".")
            delattr(graph.get_submodule(owner), last)


def needed_tensors(method: Method, crop: int) -> set[str]:
    """The names of the tensors of the method's `state_dict` that predictions need, with all their variants.

    A part with a buffer that is computed when it is loaded, as the causal head has, stays whole.
    """
    network = ExportedNetwork(AllAnswers(method), Preprocessing(crop, crop), included=False)
    program, saved = traced(network), method.state_dict()
    used = {name.removeprefix("network.method.") for name in (*program.state_dict, *program.constants)}
    whole = tuple(f"{name.rpartition('.')[0]}." for name in used if name not in saved)
    return {name for name in saved if name in used or name.startswith(whole)}


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Makes `torch.autocast` do nothing. Methods only turn it off, and it is off here, but a graph would note it as an
    operation that files cannot hold."""

    def nothing(*_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    with mock.patch.object(torch, "autocast", nothing):
        yield
