"""Batches as a pure function of (seed, step): asking twice, or after a restart, gives the same batch."""

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from tcm.data.augment import CropPixels, View, as_input, crop_counterfactuals, crop_images, random_views
from tcm.data.batch import Batch, Counterfactuals, StrongViews
from tcm.data.store import ImageStore
from tcm.data.strong_views import Strength, StrongParameters, random_strong_parameters, strong_views
from tcm.errors import InputError, printable

BLOCK = 64  # steps whose random choices are drawn together, so that a step costs the host almost nothing
SIDES = ("source", "target")
CHUNK = 8  # steps that are prefetched together where images do not fit on the device
CHUNK_WITH_COUNTERFACTUALS = 2  # the same where each image comes with counterfactuals, which take more memory


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
    """The images of batch `number`, out of `count`: every image once per epoch, each epoch in an order of its own."""
    positions = range(number * batch, (number + 1) * batch)
    epochs = sorted({position // count for position in positions})
    orders = torch.cat([_order(seed, side, epoch, count) for epoch in epochs])
    start = positions.start - epochs[0] * count
    return orders[start : start + batch]


Rows = tuple[Tensor, CropPixels]  # rows of a part on the device, and which of their pixels are wanted


class Strong(NamedTuple):
    """The strong views of batches."""

    strength: Strength
    counterfactuals: float  # share of the views that start from a counterfactual of the image, by a random mechanism
    mechanisms: tuple[list[int], list[int]] | None = None  # those to choose from for each domain; None: all


class StrongPlan(NamedTuple):
    """What makes the strong views of a batch. There may be axes before `batch`."""

    look: StrongParameters
    made_by: Tensor  # [..., batch], the mechanism whose counterfactual is the start; -1: the image itself


def starting_points(images: Rows, made: Rows | None, plan: StrongPlan) -> Tensor:
    """The stored images from which strong views start: uint8 [batch, size, size, 3]."""
    rows, pixels = images
    originals = rows[pixels.indices]
    if made is None:
        return originals
    rows, pixels = made
    chosen = rows[pixels.indices, plan.made_by.clamp_min(0)]
    return torch.where((plan.made_by < 0)[:, None, None, None], originals, chosen)


class Part(NamedTuple):
    """What batches take from one domain: its images, labels or counterfactuals, one row per image."""

    rows: Tensor
    side: int  # index into SIDES
    resident: bool  # whether the rows are on the device


class Stream:
    """The training batches of a pair of stores.

    What fits lives on the device: everything, or else the images without their counterfactuals. A thread prefetches the
    rest a few batches ahead: it gathers whole images from the memory-mapped files into pinned memory, which copies to
    the device asynchronously. Images are always cropped on the device.
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
        strong: Strong | None = None,
        resident: bool | None = None,
    ):
        """`transported` are the counterfactuals of both stores' images in their order: uint8 [n, k, size, size, 3].
        Source images that `held_out` marks, bool [n], are in no batch. With `strong`, batches have strong views, and
        counterfactuals are where these start; otherwise batches have the counterfactuals themselves."""
        # The images of each domain that batches are drawn from; None: all of them.
        self._chosen = (None if held_out is None else (~held_out).nonzero().flatten(), None)
        for store, chosen in zip((source, target), self._chosen, strict=True):
            _require_batch(batch, store, chosen)
        self.stores, self.batch_size, self.seed, self.view, self.device = (source, target), batch, seed, view, device
        images, made = [source.images, source.labels, target.images], list(transported or ())
        all_fit, images_fit = (
            fits(parts, device) if resident is None else resident for parts in (images + made, images)
        )
        on_device = [all_fit or images_fit] * len(images) + [all_fit] * len(made)
        self.parts = [
            Part(rows.to(device) if kept else rows, side, kept)
            for rows, side, kept in zip(images + made, (0, 0, 1, 0, 1), on_device, strict=False)
        ]
        self._thread = None if all(on_device) else ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._chunk = CHUNK_WITH_COUNTERFACTUALS if made else CHUNK
        self._pending: dict[int, Future[list[Tensor]]] = {}
        self.strong, self.k = strong, transported[0].shape[1] if transported else 0
        domains = source.source_numbers
        self._domains = None if domains is None else domains.to(device)
        self._blocks: dict[int, tuple[CropPixels, ...]] = {}
        self._strong_blocks: dict[int, tuple[StrongPlan, ...]] = {}

    def batch(self, step: int) -> Batch:
        """The batch of this step, on the device."""
        source, (labels, labelled), target, *made = self._rows(step)
        counterfactuals = strong = None
        if self.strong:
            strong = self._strong_views(step, [source, target], made)
        elif made:
            counterfactuals = Counterfactuals(*(as_input(crop_counterfactuals(*part)) for part in made))
        of_source, of_target = (side.indices for side in self.plan(step))
        return Batch(
            as_input(crop_images(*source)),
            labels[labelled.indices],
            as_input(crop_images(*target)),
            counterfactuals,
            strong,
            of_target,
            None if self._domains is None else self._domains[of_source],
        )

    def _strong_views(self, step: int, images: list[Rows], made: list[Rows]) -> StrongViews:
        """Strong views of the source and target images, some of them by way of a counterfactual."""
        source, target = (
            strong_views(starting_points(images[side], made[side] if made else None, drawn), drawn.look, self.view.crop)
            for side, drawn in enumerate(self.strong_plan(step))
        )
        return StrongViews(source, target)

    def strong_plan(self, step: int) -> tuple[StrongPlan, StrongPlan]:
        """What makes the strong views of the source and target images of this step."""
        number, place = divmod(step, BLOCK)
        if number not in self._strong_blocks:
            self._strong_blocks = {number: (self._drawn_strong(0, number), self._drawn_strong(1, number))}
        source, target = (StrongPlan(side.look.at(place), side.made_by[place]) for side in self._strong_blocks[number])
        return source, target

    def _drawn_strong(self, side: int, number: int) -> StrongPlan:
        """The strong views of one domain in all steps of a block, on the device: leading axis BLOCK."""
        assert self.strong is not None
        generator = derived_generator(self.seed, SIDES[side], "strong view", number)
        shape, size = (BLOCK, self.batch_size), self.stores[side].size
        look = random_strong_parameters(shape, size, self.view, self.strong.strength, generator)
        made_by = torch.full(shape, -1)
        usable = torch.tensor(self.strong.mechanisms[side] if self.strong.mechanisms else range(self.k))
        if len(usable):
            mechanisms = usable[torch.randint(len(usable), shape, generator=generator)]
            made_by = mechanisms.where(torch.rand(shape, generator=generator) < self.strong.counterfactuals, -1)
        return StrongPlan(look.to(self.device), made_by.to(self.device))

    def _rows(self, step: int) -> list[Rows]:
        """The rows of every part on the device, and which of their pixels make up this step."""
        plan = self.plan(step)
        if self._thread is None:
            return [(part.rows, plan[part.side]) for part in self.parts]
        in_order = torch.arange(self.batch_size, device=self.device)
        fetched = iter(self._prefetched(step, self._thread))
        return [
            (part.rows, plan[part.side])
            if part.resident
            else (next(fetched), plan[part.side]._replace(indices=in_order))
            for part in self.parts
        ]

    def plan(self, step: int) -> tuple[CropPixels, CropPixels]:
        """Which pixels of which source and target images make up this step."""
        number, place = divmod(step, BLOCK)
        if number not in self._blocks:
            self._blocks = {number: (self._drawn(0, number), self._drawn(1, number))}
        source, target = (CropPixels(*(part[place] for part in side)) for side in self._blocks[number])
        return source, target

    def _drawn(self, side: int, number: int) -> CropPixels:
        """The crops of one domain in all steps of a block, on the device: leading axis BLOCK."""
        store, name = self.stores[side], SIDES[side]
        indices = self._indices(side, number).reshape(BLOCK, -1).to(self.device)
        generator = derived_generator(self.seed, name, "view", number)
        return random_views(indices, store.size, self.view, generator)

    def _indices(self, side: int, number: int) -> Tensor:
        """The images of one domain in all steps of a block, [BLOCK * batch]."""
        chosen, batch = self._chosen[side], BLOCK * self.batch_size
        if chosen is None:
            return indices_at(self.seed, SIDES[side], number, batch, len(self.stores[side]))
        return chosen[indices_at(self.seed, SIDES[side], number, batch, len(chosen))]

    def _prefetched(self, step: int, thread: ThreadPoolExecutor) -> list[Tensor]:
        """This step's rows of the parts that are not resident, copied to the device. Starts on the next chunk."""
        chunk, place = divmod(step, self._chunk)
        for old in [known for known in self._pending if known not in (chunk, chunk + 1)]:
            self._pending.pop(old).cancel()
        for wanted in (chunk, chunk + 1):
            if wanted not in self._pending:
                self._pending[wanted] = thread.submit(self._gathered, wanted)
        rows = slice(place * self.batch_size, (place + 1) * self.batch_size)
        return [part[rows].to(self.device, non_blocking=True) for part in self._pending[chunk].result()]

    def _gathered(self, chunk: int) -> list[Tensor]:
        """The rows of a chunk's steps in host memory, pinned if there is a GPU to copy them to."""
        number, place = divmod(chunk * self._chunk, BLOCK)
        rows = slice(place * self.batch_size, (place + self._chunk) * self.batch_size)
        chosen = [self._indices(side, number)[rows] for side in (0, 1)]
        pin = self.device.type == "cuda"

        def gathered(part: Part) -> Tensor:
            out = torch.empty((len(chosen[part.side]), *part.rows.shape[1:]), dtype=part.rows.dtype, pin_memory=pin)
            return torch.index_select(part.rows, 0, chosen[part.side], out=out)

        return [gathered(part) for part in self.parts if not part.resident]


def fits(parts: list[Tensor], device: torch.device) -> bool:
    """Whether these may live on the device: always on the CPU (memory-mapped), else in half its free memory."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return sum(part.nbytes for part in parts) < free / 2


def _require_batch(batch: int, store: ImageStore, chosen: Tensor | None) -> None:
    count = len(store) if chosen is None else len(chosen)
    if not 1 <= batch <= count:
        left = "" if chosen is None else " left by `held_out`"
        remedy = "lower it or add images" if batch > 1 else "give 1 or more"
        raise InputError("batch", f"is {batch}, but {printable(store.name)} has {count} images{left}; {remedy}")
