"""Batches as a pure function of (seed, step): asking twice, or after a restart, gives the same batch."""

import hashlib
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import torch
from torch import Generator, Tensor

from tcm.data.augment import View, as_input, cut, random_cuts
from tcm.data.store import ImageStore
from tcm.errors import InputError
from tcm.learner import Batch

AHEAD = 3  # how many batches are prepared while the GPU computes, when its memory cannot hold the images


def derived_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def derived_generator(*parts: int | str) -> Generator:
    """A CPU generator seeded by every part."""
    return torch.Generator().manual_seed(derived_seed(*parts))


@lru_cache(maxsize=8)
def _order(seed: int, side: str, epoch: int, count: int) -> Tensor:
    return torch.randperm(count, generator=derived_generator(seed, side, "order", epoch))


def indices_at(seed: int, side: str, step: int, batch: int, count: int) -> Tensor:
    """Which of `count` images make up this step's batch: every image once an epoch, each epoch in its own order."""
    positions = range(step * batch, (step + 1) * batch)
    epochs = sorted({position // count for position in positions})
    orders = torch.cat([_order(seed, side, epoch, count) for epoch in epochs])
    start = positions.start - epochs[0] * count
    return orders[start : start + batch]


class Stream:
    """The training batches of a pair of stores.

    If both stores fit the device they live there, and a batch is a gather on it. If not, the host cuts the squares
    out of the memory-mapped files a few batches ahead, into pinned memory that copies to the device on its own.
    """

    def __init__(
        self,
        source: ImageStore,
        target: ImageStore,
        *,
        batch: int,
        seed: int,
        view: View,
        device: torch.device,
        resident: bool | None = None,
    ):
        for store in (source, target):
            if not 1 <= batch <= len(store):
                raise InputError(
                    f"--batch is {batch}, but {store.name} has {len(store)} images; give 1 to {len(store)}"
                )
        self.stores, self.batch_size, self.seed, self.view, self.device = (source, target), batch, seed, view, device
        self.resident = fits(self.stores, device) if resident is None else resident
        self._images = [store.images.to(device) if self.resident else store.images for store in self.stores]
        self._labels = source.labels.to(device) if self.resident else source.labels
        self._thread = None if self.resident else ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._ahead: OrderedDict[int, Future[Batch]] = OrderedDict()

    def batch(self, step: int) -> Batch:
        """The batch of this step, on the device."""
        if self._thread is None:
            return self._resident_batch(step)
        for ahead in range(step, step + AHEAD):
            if ahead not in self._ahead:
                self._ahead[ahead] = self._thread.submit(self._fed_batch, ahead)
        for past in [known for known in self._ahead if not step <= known < step + AHEAD]:
            self._ahead.pop(past).cancel()
        squares_s, labels, squares_t = self._ahead.pop(step).result()
        source, labels, target = (x.to(self.device, non_blocking=True) for x in (squares_s, labels, squares_t))
        return Batch(as_input(source), labels, as_input(target))

    def plan(self, step: int) -> Tensor:
        """Index, top, left and mirror of every image of this step, source then target: int64 [2, 4, batch]."""
        rows = []
        for side, store in zip(("source", "target"), self.stores, strict=True):
            indices = indices_at(self.seed, side, step, self.batch_size, len(store))
            generator = derived_generator(self.seed, side, "view", step)
            cuts = random_cuts(self.batch_size, store.size, self.view, generator)
            rows.append(torch.cat([indices[None], cuts]))
        return torch.stack(rows)

    def _resident_batch(self, step: int) -> Batch:
        plan = self.plan(step).to(self.device, non_blocking=True)
        source, target = (cut(x, p[0], p[1:], self.view.crop) for x, p in zip(self._images, plan, strict=True))
        return Batch(as_input(source), self._labels[plan[0, 0]], as_input(target))

    def _fed_batch(self, step: int) -> Batch:
        plan = self.plan(step)
        source, target = (cut(x, p[0], p[1:], self.view.crop) for x, p in zip(self._images, plan, strict=True))
        batch = Batch(source, self._labels[plan[0, 0]], target)
        return Batch(*(x.pin_memory() for x in batch)) if self.device.type == "cuda" else batch


def fits(stores: tuple[ImageStore, ...], device: torch.device) -> bool:
    """Whether the images may live on the device: always on the CPU (memory-mapped), else in half its free memory."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return sum(store.images.numel() for store in stores) < free / 2
