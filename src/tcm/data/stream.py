"""Batches as a pure function of (seed, step): asking twice, or after a restart, gives the same batch."""

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from tcm.data.augment import Squares, View, as_input, cut, cut_all, random_squares
from tcm.data.batch import Batch, Counterfactuals
from tcm.data.store import ImageStore
from tcm.errors import InputError

BLOCK = 64  # steps whose random choices are drawn together: a step then costs the host next to nothing
SIDES = ("source", "target")
CHUNK = 8  # steps that the host gathers at once when the images do not fit the device: few hand-overs between threads
CHUNK_OF_MANY = 2  # the same where each image comes with its counterfactuals, so that host memory holds them


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


class Part(NamedTuple):
    """What a batch takes of one domain: images, labels or counterfactuals, one row an image."""

    rows: Tensor
    side: int  # of SIDES
    resident: bool  # whether the rows live on the device


class Stream:
    """The training batches of a pair of stores.

    What fits the device lives there: everything, or else the images without their counterfactuals. Of the rest, the
    host gathers whole images out of the memory-mapped files a few batches ahead, into pinned memory that copies to the
    device on its own. Squares are always cut on the device.
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
        transported: tuple[Tensor, Tensor] | None = None,
        held_out: Tensor | None = None,
        resident: bool | None = None,
    ):
        """`transported` are the counterfactuals of both stores' images in their order: uint8 [n, k, size, size, 3].
        Source images that `held_out` marks, bool [n], are in no batch."""
        # Of each domain the images that batches are drawn from; None: all of them.
        self._chosen = (None if held_out is None else (~held_out).nonzero().flatten(), None)
        for store, chosen in zip((source, target), self._chosen, strict=True):
            count = len(store) if chosen is None else len(chosen)
            if not 1 <= batch <= count:
                left = "" if chosen is None else " left by --held-out"
                raise InputError(
                    f"--batch is {batch}, but {store.name} has {count} images{left}; lower it or add images"
                )
        self.stores, self.batch_size, self.seed, self.view, self.device = (source, target), batch, seed, view, device
        images, made = [source.images, source.labels, target.images], list(transported or ())
        all_fit, images_fit = (
            fits(parts, device) if resident is None else resident for parts in (images + made, images)
        )
        there = [all_fit or images_fit] * len(images) + [all_fit] * len(made)
        self._parts = [
            Part(rows.to(device) if kept else rows, side, kept)
            for rows, side, kept in zip(images + made, (0, 0, 1, 0, 1), there, strict=False)
        ]
        self._thread = None if all(there) else ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._chunk = CHUNK_OF_MANY if made else CHUNK
        self._ahead: dict[int, Future[list[Tensor]]] = {}
        self._blocks: dict[int, tuple[Squares, ...]] = {}

    def batch(self, step: int) -> Batch:
        """The batch of this step, on the device."""
        source, (labels, labelled), target, *made = self._rows(step)
        counterfactuals = Counterfactuals(*(as_input(cut_all(*part)) for part in made)) if made else None
        return Batch(as_input(cut(*source)), labels[labelled.indices], as_input(cut(*target)), counterfactuals)

    def _rows(self, step: int) -> list[tuple[Tensor, Squares]]:
        """The rows of every part on the device, and which pixels of which of them make up this step."""
        plan = self.plan(step)
        if self._thread is None:
            return [(part.rows, plan[part.side]) for part in self._parts]
        in_order = torch.arange(self.batch_size, device=self.device)
        fed = iter(self._fed(step, self._thread))
        return [
            (part.rows, plan[part.side]) if part.resident else (next(fed), plan[part.side]._replace(indices=in_order))
            for part in self._parts
        ]

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
        return random_squares(indices, store.size, self.view, generator)

    def _indices(self, side: int, number: int) -> Tensor:
        chosen, batch = self._chosen[side], BLOCK * self.batch_size
        if chosen is None:
            return indices_at(self.seed, SIDES[side], number, batch, len(self.stores[side]))
        return chosen[indices_at(self.seed, SIDES[side], number, batch, len(chosen))]

    def _fed(self, step: int, thread: ThreadPoolExecutor) -> list[Tensor]:
        """This step's rows of the parts that are not resident, copied to the device; the next are begun."""
        chunk, place = divmod(step, self._chunk)
        for old in [known for known in self._ahead if known not in (chunk, chunk + 1)]:
            self._ahead.pop(old).cancel()
        for wanted in (chunk, chunk + 1):
            if wanted not in self._ahead:
                self._ahead[wanted] = thread.submit(self._gathered, wanted)
        rows = slice(place * self.batch_size, (place + 1) * self.batch_size)
        return [part[rows].to(self.device, non_blocking=True) for part in self._ahead[chunk].result()]

    def _gathered(self, chunk: int) -> list[Tensor]:
        """The same of a chunk's steps in host memory, pinned if there is a GPU to copy them to."""
        number, place = divmod(chunk * self._chunk, BLOCK)
        rows = slice(place * self.batch_size, (place + self._chunk) * self.batch_size)
        chosen = [self._indices(side, number)[rows] for side in (0, 1)]
        pin = self.device.type == "cuda"

        def gathered(part: Part) -> Tensor:
            out = torch.empty((len(chosen[part.side]), *part.rows.shape[1:]), dtype=part.rows.dtype, pin_memory=pin)
            return torch.index_select(part.rows, 0, chosen[part.side], out=out)

        return [gathered(part) for part in self._parts if not part.resident]


def fits(parts: list[Tensor], device: torch.device) -> bool:
    """Whether these may live on the device: always on the CPU (memory-mapped), else in half its free memory."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return sum(part.nbytes for part in parts) < free / 2
