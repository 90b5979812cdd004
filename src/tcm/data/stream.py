"""Batches as a pure function of (seed, step): asking twice, or after a restart, gives the same batch."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from tcm.data.augment import CropPixels, View, as_input, crop_counterfactuals, crop_images, random_views
from tcm.data.batch import Batch, Counterfactuals, StrongViews
from tcm.data.feeding import Feeder
from tcm.data.store import ImageStore
from tcm.data.strong_views import Strength, StrongParameters, random_strong_parameters, strong_views
from tcm.errors import InputError, printable

BLOCK = 64  # steps whose random choices are drawn together, so that a step costs the host almost nothing
RELEASE_EVERY = 16  # steps after which the images that were read no longer count as memory of this process
SIDES = ("source", "target")


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

    def to(self, device: torch.device) -> "StrongPlan":
        """The same on the device."""
        return StrongPlan(self.look.to(device), self.made_by.to(device))


class Block(NamedTuple):
    """The random choices of a block of steps: leading axis BLOCK."""

    pixels: tuple[CropPixels, CropPixels]  # of source and target images, on the device
    strong: tuple[StrongPlan, StrongPlan] | None  # of source and target images, on the device
    places: list[Tensor]  # [BLOCK, batch] for each part: where its rows on the device have those of the batch
    fed: list[list[Tensor]]  # for each part that is not on the device: the rows that each step needs, in host memory


def starting_points(images: Rows, made: Rows | None, made_by: Tensor) -> Tensor:
    """The stored images from which strong views start: uint8 [batch, size, size, 3]."""
    rows, pixels = images
    originals = rows[pixels.indices]
    if made is None:
        return originals
    rows, pixels = made
    return torch.where((made_by < 0)[:, None, None, None], originals, rows[pixels.indices])


class Part(NamedTuple):
    """What batches take from one domain: its images or its counterfactuals."""

    rows: Tensor  # one per image; of counterfactuals for strong views, one per image and mechanism
    side: int  # index into SIDES
    starts: bool  # whether these are the counterfactuals that strong views start from
    resident: bool  # whether the rows are on the device

    def rows_of(self, chosen: Tensor, made_by: Tensor | None, k: int) -> tuple[list[Tensor], Tensor]:
        """The rows that each step needs for the chosen images [BLOCK, batch], and their places on the device.

        Where `made_by` is -1, a strong view needs no counterfactual, and the place is that of any row.
        """
        if made_by is None:
            in_order = torch.arange(chosen.shape[1]).expand_as(chosen)
            return list(chosen), chosen if self.resident else in_order
        rows, used = chosen * k + made_by, made_by >= 0
        needed = [numbers[some] for numbers, some in zip(rows, used, strict=True)]
        return needed, (rows if self.resident else used.cumsum(dim=1) - 1).clamp_min(0)


class Stream:
    """The training batches of a pair of stores.

    What fits lives on the device: everything, or else the images without their counterfactuals. Of the rest, a `Feeder`
    brings the rows that a step needs: whole images, and of the counterfactuals only those that strong views start from.
    Images are always cropped on the device.
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
        self.strong, self.k = strong, transported[0].shape[1] if transported else 0
        images, made = [source.images, target.images], list(transported or ())
        if strong:
            made = [rows.flatten(0, 1) for rows in made]
        all_fit, images_fit = (
            fits(parts, device) if resident is None else resident for parts in (images + made, images)
        )
        on_device = [all_fit or images_fit] * len(images) + [all_fit] * len(made)
        self.parts = [
            Part(rows.to(device) if kept else rows, number % 2, bool(strong) and number > 1, kept)
            for number, (rows, kept) in enumerate(zip(images + made, on_device, strict=True))
        ]
        self._labels = source.labels.to(device)
        domains = source.source_numbers
        self._domains = None if domains is None else domains.to(device)
        fed = [part.rows for part in self.parts if not part.resident]
        self._feeder = Feeder(fed, batch, device) if fed else None
        self._blocks: dict[int, Block] = {}

    def batch(self, step: int) -> Batch:
        """The batch of this step, on the device."""
        pixels = labelled, shown = self.plan(step)
        counterfactuals = strong = None
        with self._rows(step, pixels) as (source, target, *made):
            if self.strong:
                strong = self._strong_views(step, [source, target], made)
            elif made:
                counterfactuals = Counterfactuals(*(as_input(crop_counterfactuals(*part)) for part in made))
            images = [as_input(crop_images(*part)) for part in (source, target)]
        if step % RELEASE_EVERY == 0:
            for store in self.stores:
                store.release_pages()
        return Batch(
            images[0],
            self._labels[labelled.indices],
            images[1],
            counterfactuals,
            strong,
            shown.indices,
            None if self._domains is None else self._domains[labelled.indices],
        )

    def _strong_views(self, step: int, images: list[Rows], made: list[Rows]) -> StrongViews:
        """Strong views of the source and target images, some of them by way of a counterfactual."""
        source, target = (
            strong_views(
                starting_points(images[side], made[side] if made else None, drawn.made_by), drawn.look, self.view.crop
            )
            for side, drawn in enumerate(self.strong_plan(step))
        )
        return StrongViews(source, target)

    @contextmanager
    def _rows(self, step: int, pixels: tuple[CropPixels, CropPixels]) -> Iterator[list[Rows]]:
        """The rows of every part on the device, and which of their pixels make up this step."""
        block, place = self._block(step)
        with self._feeder.rows(step, self.fed_rows) if self._feeder else nullcontext([]) as found:
            fed = iter(found)
            yield [
                (part.rows if part.resident else next(fed), pixels[part.side]._replace(indices=places[place]))
                for part, places in zip(self.parts, block.places, strict=True)
            ]

    def fed_rows(self, step: int) -> list[Tensor]:
        """The rows that this step needs of each part that is not on the device, in host memory."""
        block, place = self._block(step)
        return [rows[place] for rows in block.fed]

    def plan(self, step: int) -> tuple[CropPixels, CropPixels]:
        """Which pixels of which source and target images make up this step."""
        block, place = self._block(step)
        source, target = (CropPixels(*(part[place] for part in side)) for side in block.pixels)
        return source, target

    def strong_plan(self, step: int) -> tuple[StrongPlan, StrongPlan]:
        """What makes the strong views of the source and target images of this step."""
        block, place = self._block(step)
        assert block.strong is not None
        source, target = (StrongPlan(side.look.at(place), side.made_by[place]) for side in block.strong)
        return source, target

    def _block(self, step: int) -> tuple[Block, int]:
        """The block of this step, and the place of the step in it."""
        number, place = divmod(step, BLOCK)
        if number not in self._blocks:
            last = list(self._blocks.items())[-1:]  # feeding looks ahead, so two blocks may be in use
            self._blocks = {**dict(last), number: self._drawn(number)}
        return self._blocks[number], place

    def _drawn(self, number: int) -> Block:
        """The random choices of all steps of a block."""
        chosen = [self._indices(side, number).reshape(BLOCK, -1) for side in (0, 1)]
        pixels = [self._drawn_views(side, number, chosen[side]) for side in (0, 1)]
        strong = [self._drawn_strong(side, number) for side in (0, 1)] if self.strong else []
        rows = [
            part.rows_of(chosen[part.side], strong[part.side].made_by if part.starts else None, self.k)
            for part in self.parts
        ]
        return Block(
            (pixels[0], pixels[1]),
            (strong[0].to(self.device), strong[1].to(self.device)) if strong else None,
            [places.to(self.device) for _, places in rows],
            [needed for part, (needed, _) in zip(self.parts, rows, strict=True) if not part.resident],
        )

    def _drawn_views(self, side: int, number: int, chosen: Tensor) -> CropPixels:
        """The crops of the chosen images [BLOCK, batch] of one domain in all steps of a block, on the device."""
        generator = derived_generator(self.seed, SIDES[side], "view", number)
        return random_views(chosen.to(self.device), self.stores[side].size, self.view, generator)

    def _drawn_strong(self, side: int, number: int) -> StrongPlan:
        """The strong views of one domain in all steps of a block: leading axis BLOCK."""
        assert self.strong is not None
        generator = derived_generator(self.seed, SIDES[side], "strong view", number)
        shape, size = (BLOCK, self.batch_size), self.stores[side].size
        look = random_strong_parameters(shape, size, self.view, self.strong.strength, generator)
        made_by = torch.full(shape, -1)
        usable = torch.tensor(self.strong.mechanisms[side] if self.strong.mechanisms else range(self.k))
        if len(usable):
            mechanisms = usable[torch.randint(len(usable), shape, generator=generator)]
            made_by = mechanisms.where(torch.rand(shape, generator=generator) < self.strong.counterfactuals, -1)
        return StrongPlan(look, made_by)

    def _indices(self, side: int, number: int) -> Tensor:
        """The images of one domain in all steps of a block, [BLOCK * batch]."""
        chosen, batch = self._chosen[side], BLOCK * self.batch_size
        if chosen is None:
            return indices_at(self.seed, SIDES[side], number, batch, len(self.stores[side]))
        return chosen[indices_at(self.seed, SIDES[side], number, batch, len(chosen))]


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
