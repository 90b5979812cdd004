"""Is the digit still there? A network that reads the built-in digits, for measuring only: no method sees it."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.data import digits
from tcm.data.augment import as_input, as_stored
from tcm.data.factors import HIGH, LOW
from tcm.data.task import Task
from tcm.mechanisms.disentanglement import Transport
from tcm.mechanisms.pair import SIDES, Side, opposite
from tcm.nn.backbone import BackboneConfig
from tcm.nn.heads import classifier

LEARNT, HELD_OUT = slice(0, None, 2), slice(1, None, 2)  # of each domain's images, in the order of the store
COPIES = 8  # renderings of each digit from which the reader learns
STEPS, BATCH, RATE = 800, 64, 4e-3
SHIFT = 2  # pixels


class DigitReader(nn.Module):
    """Reads the digit and its four style factors, so that its features know both."""

    def __init__(self):
        super().__init__()
        self.backbone = BackboneConfig("small").build()
        self.head = classifier(self.backbone.features, len(digits.CLASSES) + len(digits.FACTORS))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [batch, 10] and standardised factors [batch, 4] of images [batch, 3, 32, 32] in [0, 1]."""
        logits, factors = self.head(self.backbone(images)).split([len(digits.CLASSES), len(digits.FACTORS)], dim=1)
        return logits, factors

    @torch.inference_mode()
    def read(self, images: Tensor) -> Tensor:
        """The digits [n] that images [n, 3, 32, 32] show."""
        return torch.cat([self(part)[0].argmax(dim=1) for part in images.split(256)])


class Readability(NamedTuple):
    """Shares of held-out digits that are read right, by the domain that images were carried to."""

    untouched: dict[Side, float]  # the same images before they were carried there
    made: dict[Side, list[float]]  # [k]


def readability(transport: Transport, task: Task) -> Readability:
    """Whether the digits survive a bank of mechanisms, or anything that transports like one; on the CPU."""
    reader, untouched, made = digit_reader(), {}, {}
    for origin, store in zip(SIDES, task, strict=True):
        pixels, truth, to = store.images[HELD_OUT], store.labels[HELD_OUT], opposite(origin)
        with torch.inference_mode():
            carried = as_stored(transport(as_input(pixels), to))
        untouched[to], *made[to] = [
            float((reader.read(as_input(images)) == truth).float().mean()) for images in (pixels, *carried)
        ]
    return Readability(untouched, made)


def digit_reader() -> DigitReader:
    """A copy of the reader, in evaluation mode; the first call trains it, in half a minute, alike on one machine.

    It learns from the true labels of every other digit of both domains. They are rendered anew in styles that are
    drawn far wider than either domain's and without regard to the class: a reader of the source as it is would
    read the colour, and take a digit for lost when a mechanism changes nothing but that.
    """
    return copy.deepcopy(_trained())


@contextmanager
def one_thread() -> Iterator[None]:
    """How a sum is split over threads changes its last digits, and training makes much of them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@lru_cache(maxsize=1)
def _trained() -> DigitReader:
    images, labels, factors = _lessons()
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(digits.DATA_SEED)
        reader = DigitReader().train()
        optimizer = torch.optim.AdamW(reader.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
        for _ in range(STEPS):
            chosen = torch.randint(len(images), (BATCH,))
            offset = torch.randint(-SHIFT, SHIFT + 1, (2,)).tolist()
            logits, style = reader(as_input(images[chosen]).roll(offset, dims=(2, 3)))
            loss = F.cross_entropy(logits, labels[chosen], label_smoothing=0.05) + F.mse_loss(style, factors[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return reader.eval()


def _lessons() -> tuple[Tensor, Tensor, Tensor]:
    """Images, labels and standardised factors from which the reader learns."""
    rng = np.random.default_rng(digits.DATA_SEED)
    both = [digits.shapes(side) for side in SIDES] * COPIES
    bare = np.concatenate([drawn[LEARNT] for drawn, _, _ in both])
    labels = np.concatenate([truth[LEARNT] for _, truth, _ in both])
    factors = rng.uniform(LOW, HIGH, (len(bare), len(digits.FACTORS)))
    images = digits.render(bare, factors, rng.normal(size=(*bare.shape, 3)))
    standardised = (factors - factors.mean(axis=0)) / factors.std(axis=0)
    return torch.from_numpy(images), torch.from_numpy(labels), torch.from_numpy(standardised).float()
