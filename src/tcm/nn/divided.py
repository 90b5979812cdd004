"""A network whose batch is divided among the processes of a run, and which still computes what one process would.

Every process has the whole batch of images. It passes its part through the network, and the features of all parts are
gathered. What comes after the network sees the whole batch in every process, so losses over pairs or classes of images
are exact, and their gradients need no exchange. Batch normalisation takes its statistics over all parts.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from tcm.nn.losses import in_single


def part_of(rank: int, size: int, count: int) -> slice:
    """The rows of a batch of `count` that process `rank` of `size` computes. Their numbers differ by at most one."""
    return slice(count * rank // size, count * (rank + 1) // size)


class _GatheredRows(torch.autograd.Function):
    """The rows of all processes. Each has the same loss of all rows, so the gradient of its own rows is there."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, own: Tensor, count: int) -> Tensor:
        rank, size = dist.get_rank(), dist.get_world_size()
        parts = [part_of(other, size, count) for other in range(size)]
        ctx.rows = parts[rank]  # pyright: ignore[reportAttributeAccessIssue]
        longest = max(rows.stop - rows.start for rows in parts)
        padded = own.new_zeros(longest, *own.shape[1:])
        padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in parts]
        dist.all_gather(found, padded)
        return torch.cat([rows[: part.stop - part.start] for rows, part in zip(found, parts, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        return gradient[ctx.rows], None  # pyright: ignore[reportAttributeAccessIssue]


class _Summed(torch.autograd.Function):
    """The sum over all processes. Each knows the gradient of what it made of the sum, and they add up."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, own: Tensor) -> Tensor:
        return sum_over_processes(own)

    @staticmethod
    @once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:  # pyright: ignore
        return sum_over_processes(gradient)


def gathered_rows(own: Tensor, count: int) -> Tensor:
    """All `count` rows of a batch, in every process, from the rows that each has by `part_of`.

    The gradient is right if all processes compute the same loss from the result.
    """
    found = _GatheredRows.apply(own, count)
    assert isinstance(found, Tensor)
    return found


def summed(own: Tensor) -> Tensor:
    """The sum of a tensor over all processes, with its gradient."""
    found = _Summed.apply(own)
    assert isinstance(found, Tensor)
    return found


def sum_over_processes(own: Tensor) -> Tensor:
    """The sum of a tensor over all processes, as a new tensor without a gradient."""
    total = own.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


class GlobalBatchNorm(_BatchNorm):
    """Batch normalisation with the statistics of all processes. PyTorch's own works on GPUs only."""

    after: Callable[[Tensor], Tensor] | None = None  # an activation that the layer includes

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input [batch, channels, ...], followed by the activation if the layer includes one."""
        found = self.normalised(input) if self.training or self.running_mean is None else super().forward(input)
        return found if self.after is None else self.after(found)

    def normalised(self, input: Tensor) -> Tensor:
        """The input, normalised with the mean and the variance of the whole batch. Updates the running statistics."""
        x, axes = in_single(input), [0, *range(2, input.ndim)]
        shape = [1, -1] + [1] * (input.ndim - 2)
        own = x.new_full((1,), x.numel() / x.shape[1])
        total = summed(torch.cat([x.sum(dim=axes), own]))
        count, mean = total[-1].detach(), total[:-1] / total[-1].detach()
        centred = x - mean.view(shape)
        variance = summed(centred.square().sum(dim=axes)) / count
        if self.running_mean is not None and self.running_var is not None:
            self.update_running(mean.detach(), variance.detach() * count / (count - 1))
        found = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            found = found * self.weight.view(shape) + self.bias.view(shape)
        return found.to(input.dtype)

    @torch.no_grad()
    def update_running(self, mean: Tensor, variance: Tensor) -> None:
        """Moves the running statistics towards those of this batch."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(variance.to(self.running_var), share)

    def _check_input_dim(self, input: Tensor) -> None:
        pass  # of any dimension


def with_global_norms(network: nn.Module) -> nn.Module:
    """The network with batch normalisation over all processes. Parameters, buffers and their names stay."""
    if isinstance(network, _BatchNorm):
        return _global_norm(network)
    for name, child in network.named_children():
        setattr(network, name, with_global_norms(child))
    return network


def _global_norm(layer: _BatchNorm) -> GlobalBatchNorm:
    new = GlobalBatchNorm(
        layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats, device="meta"
    )
    new._parameters, new._buffers = layer._parameters, layer._buffers
    if hasattr(layer, "act"):  # timm's layers with an activation
        new.drop, new.act = layer.drop, layer.act
        new.after = lambda found: layer.act(layer.drop(found))  # pyright: ignore[reportCallIssue]
    return new.train(layer.training)


def divide_batches(network: nn.Module, rank: int, size: int) -> None:
    """Makes the network compute each batch together with the other processes: every process calls it with the whole
    batch and gets the features of the whole batch. Gradients of its parameters are sums over all processes."""
    if next(network.parameters()).is_cuda:
        from timm.layers.norm_act import convert_sync_batchnorm  # PyTorch's, also for layers with an activation

        convert_sync_batchnorm(network)
    else:
        with_global_norms(network)
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.register_hook(sum_over_processes)
    alone = network.forward

    def forward(images: Tensor) -> Tensor:
        if len(images) < size:  # the last images of an evaluation
            assert not torch.is_grad_enabled(), "every process has an image of a training batch"
            return alone(images)
        with _OwnNoise(rank, network.training):
            own = alone(images[part_of(rank, size, len(images))])
        return gathered_rows(own, len(images))

    network.forward = forward


class _OwnNoise:
    """A context in which each process draws numbers of its own, as dropout in the network does.

    Outside, all processes continue with the same numbers, and with those of one process if the network draws none.
    """

    def __init__(self, rank: int, on: bool):
        self.rank, self.on = rank, on

    def __enter__(self) -> None:
        if self.on:
            self.before = torch.get_rng_state()
            self.on_gpu = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
            copy = torch.Generator().set_state(self.before)
            torch.manual_seed(int(torch.randint(2**62, (), generator=copy)) + self.rank)
            self.start = self._drawn()

    def __exit__(self, *_: object) -> None:
        if self.on:
            unused = torch.equal(self.start, self._drawn())
            torch.set_rng_state(self.before)
            if self.on_gpu is not None:
                torch.cuda.set_rng_state(self.on_gpu)
            if not unused:
                torch.rand(())  # so that a second pass of the same step draws other numbers

    def _drawn(self) -> Tensor:
        found = torch.get_rng_state()
        return found if self.on_gpu is None else torch.cat([found, torch.cuda.get_rng_state()])
