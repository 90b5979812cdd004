"""A pool of transported images from earlier steps, so that critics do not forget them (Shrivastava et al., 2017)."""

import torch
from torch import Tensor, nn


class ImagePool(nn.Module):
    """Gives a critic half new images, half images from earlier steps. The pool is part of the checkpoint."""

    images: Tensor
    filled: Tensor

    def __init__(self, size: int, side: int):
        super().__init__()
        self.register_buffer("images", torch.zeros(size, 3, side, side))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))

    def exchange(self, fresh: Tensor) -> Tensor:
        """Each fresh image or, with probability 1/2 once the pool is full, a stored image, which it then replaces."""
        size = len(self.images)
        return torch.cat([self._exchange_some(some) for some in fresh.detach().split(size)]) if size else fresh.detach()

    def _exchange_some(self, fresh: Tensor) -> Tensor:
        # No branch on values: the same operations in every step, so a GPU never has to wait.
        size, count = len(self.images), len(fresh)
        fresh = fresh.to(self.images.dtype)
        place = torch.arange(count, device=fresh.device) + self.filled
        anywhere = torch.randperm(size, device=fresh.device)[:count]
        slot = torch.where(self.filled >= size, anywhere, place % size)  # no slot twice
        swap = (place >= size) & (torch.rand(count, device=fresh.device) < 0.5)
        stored = self.images[slot]
        store = (place < size) | swap
        self.images[slot] = torch.where(store[:, None, None, None], fresh, stored)
        self.filled.copy_((self.filled + count).clamp(max=size))
        return torch.where(swap[:, None, None, None], stored, fresh)
