"""A mechanism: a pair of networks that transport images between the two domains of a task."""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from tcm.nn.generator import Generator, GeneratorConfig

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


def opposite(side: Side) -> Side:
    """The other domain."""
    return "target" if side == "source" else "source"


class Mechanism(nn.Module):
    """A pair (M_i, M_i^-1): `to_target` transports source images to the target domain, `to_source` the reverse."""

    def __init__(self, config: GeneratorConfig):
        super().__init__()
        self.to_target = config.build()
        self.to_source = config.build()

    def network(self, to: Side) -> Generator:
        """M_i for to="target", M_i^-1 for to="source"."""
        if to not in SIDES:
            raise ValueError(f'`to` is "{to}"; give "source" or "target"')
        return self.to_target if to == "target" else self.to_source


def run_network(network: nn.Module, images: Tensor) -> Tensor:
    """network(images). All mechanisms call this function, so that it is compiled once for all of them."""
    return network(images)


@lru_cache(maxsize=1)
def compiled_network() -> Callable[[nn.Module, Tensor], Tensor]:
    """`run_network`, compiled once for each architecture and shape of images."""
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.automatic_dynamic_shapes = False  # kernels for any shape are half as fast
    compiled = torch.compile(run_network)

    def run(network: nn.Module, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last) if images.is_cuda else images
        return compiled(network, images)

    return run
