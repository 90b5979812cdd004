"""Batches as a pure function of (seed, step): asking twice, or after a restart, gives the same batch."""

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import torch
from torch import Generator, Tensor

from tcm.data.augment import Squares, View, as_input, cut, random_cuts, squares
from tcm.data.store import ImageStore
from tcm.errors import InputError
from tcm.learner import Batch

BLOCK = 64  # steps whose random choices are drawn together: a step then costs the host next to nothing
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


def indices_at(seed: int, side: str, number: int, batch: int, count: int) -> Tensor:
    """Which of `count` images make up the batch of that number: every image once an epoch, each in its own order."""
    positions = range(number * batch, (number + 1) * batch)
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
        self._ahead: dict[int, Future[Batch]] = {}
        self._blocks: dict[int, tuple[Squares, ...]] = {}

    def batch(self, step: int) -> Batch:
        """The batch of this step, on the device."""
        if self._thread is None:
            source, labels, target = self._pixels(step)
            return Batch(as_input(source), labels, as_input(target))
        for ahead in range(step, step + AHEAD):
            if ahead not in self._ahead:
                self._ahead[ahead] = self._thread.submit(self._pinned_pixels, ahead)
        for past in [known for known in self._ahead if not step <= known < step + AHEAD]:
            self._ahead.pop(past).cancel()
        pixels = self._ahead.pop(step).result()
        source, labels, target = (part.to(self.device, non_blocking=True) for part in pixels)
        return Batch(as_input(source), labels, as_input(target))

    def plan(self, step: int) -> tuple[Squares, Squares]:
        """Which pixels of which source and target images make up this step."""
        number, place = divmod(step, BLOCK)
        if number not in self._blocks:
            self._blocks = {number: tuple(self._drawn(side, number) for side in (0, 1))}
        source, target = (Squares(*(part[place] for part in side)) for side in self._blocks[number])
        return source, target

    def _drawn(self, side: int, number: int) -> Squares:
        """The squares of one domain in all the steps of a block, where the images are: leading axis BLOCK."""
        name, store, count = ("source", "target")[side], self.stores[side], BLOCK * self.batch_size
        indices = indices_at(self.seed, name, number, count, len(store))
        cuts = random_cuts(count, store.size, self.view, derived_generator(self.seed, name, "view", number))
        device = self._images[side].device
        by_step = cuts.reshape(3, BLOCK, -1).transpose(0, 1).to(device)
        return squares(indices.reshape(BLOCK, -1).to(device), by_step, store.size, self.view.crop)

    def _pixels(self, step: int) -> Batch:
        """The step's images as uint8 [batch, crop, crop, 3], where the stores are."""
        source, target = self.plan(step)
        return Batch(cut(self._images[0], source), self._labels[source.indices], cut(self._images[1], target))

    def _pinned_pixels(self, step: int) -> Batch:
        batch = self._pixels(step)
        return Batch(*(part.pin_memory() for part in batch)) if self.device.type == "cuda" else batch


def fits(stores: tuple[ImageStore, ...], device: torch.device) -> bool:
    """Whether the images may live on the device: always on the CPU (memory-mapped), else in half its free memory."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return sum(store.images.numel() for store in stores) < free / 2
