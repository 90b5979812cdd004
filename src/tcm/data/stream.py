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
SIDES = ("source", "target")
CHUNK = 8  # steps that the host gathers at once when the images do not fit the device: few hand-overs between threads


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

    If both stores fit the device they live there. If not, the host gathers whole images out of the memory-mapped
    files a few batches ahead, into pinned memory that copies to the device on its own. Squares are always cut on
    the device.
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
        self._ahead: dict[int, Future[tuple[Tensor, ...]]] = {}
        self._blocks: dict[int, tuple[Squares, ...]] = {}

    def batch(self, step: int) -> Batch:
        """The batch of this step, on the device."""
        source, target = self.plan(step)
        if self._thread is None:
            labels = self._labels[source.indices]
            source_pixels, target_pixels = cut(self._images[0], source), cut(self._images[1], target)
        else:
            in_order = torch.arange(self.batch_size, device=self.device)
            source_images, target_images, labels = self._fed(step, self._thread)
            source_pixels = cut(source_images, source._replace(indices=in_order))
            target_pixels = cut(target_images, target._replace(indices=in_order))
        return Batch(as_input(source_pixels), labels, as_input(target_pixels))

    def plan(self, step: int) -> tuple[Squares, Squares]:
        """Which pixels of which source and target images make up this step."""
        number, place = divmod(step, BLOCK)
        if number not in self._blocks:
            self._blocks = {number: (self._drawn(0, number), self._drawn(1, number))}
        source, target = (Squares(*(part[place] for part in side)) for side in self._blocks[number])
        return source, target

    def _drawn(self, side: int, number: int) -> Squares:
        """The squares of one domain in all the steps of a block, on the device: leading axis BLOCK."""
        store, name = self.stores[side], SIDES[side]
        indices = self._indices(side, number).reshape(BLOCK, -1).to(self.device)
        generator = derived_generator(self.seed, name, "view", number)
        cuts = random_cuts(BLOCK * self.batch_size, store.size, self.view, generator)
        by_step = cuts.reshape(3, BLOCK, -1).transpose(0, 1).to(self.device)
        return squares(indices, by_step, store.size, self.view.crop)

    def _indices(self, side: int, number: int) -> Tensor:
        return indices_at(self.seed, SIDES[side], number, BLOCK * self.batch_size, len(self.stores[side]))

    def _fed(self, step: int, thread: ThreadPoolExecutor) -> list[Tensor]:
        """Source images, target images and source labels of this step, copied to the device; the next are begun."""
        chunk, place = divmod(step, CHUNK)
        for old in [known for known in self._ahead if known not in (chunk, chunk + 1)]:
            self._ahead.pop(old).cancel()
        for wanted in (chunk, chunk + 1):
            if wanted not in self._ahead:
                self._ahead[wanted] = thread.submit(self._gathered, wanted)
        rows = slice(place * self.batch_size, (place + 1) * self.batch_size)
        return [part[rows].to(self.device, non_blocking=True) for part in self._ahead[chunk].result()]

    def _gathered(self, chunk: int) -> tuple[Tensor, ...]:
        """Whole images and labels of a chunk's steps in host memory, pinned if there is a GPU to copy them to."""
        number, place = divmod(chunk * CHUNK, BLOCK)
        rows = slice(place * self.batch_size, (place + CHUNK) * self.batch_size)
        source, target = (self._indices(side, number)[rows] for side in (0, 1))
        pin = self.device.type == "cuda"

        def gathered(kept: Tensor, chosen: Tensor) -> Tensor:
            out = torch.empty((len(chosen), *kept.shape[1:]), dtype=kept.dtype, pin_memory=pin)
            return torch.index_select(kept, 0, chosen, out=out)

        return gathered(self._images[0], source), gathered(self._images[1], target), gathered(self._labels, source)


def fits(stores: tuple[ImageStore, ...], device: torch.device) -> bool:
    """Whether the images may live on the device: always on the CPU (memory-mapped), else in half its free memory."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return sum(store.images.numel() for store in stores) < free / 2
