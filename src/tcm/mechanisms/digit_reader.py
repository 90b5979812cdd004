"""Measures whether transported digits can still be read, with a network that no method sees."""

import copy
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
from tcm.training.source_probe import one_thread

TRAINING, HELD_OUT = slice(0, None, 2), slice(1, None, 2)  # of the images of each domain
COPIES = 8  # training images of each digit, each in another style
STEPS, BATCH, RATE = 800, 64, 4e-3
SHIFT = 2  # largest random shift of a training image, in pixels


class DigitReader(nn.Module):
    """Predicts the digit and its four style factors, so that its features contain both."""

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
    """Shares of held-out digits that are read correctly, by the domain that they were transported to."""

    untouched: dict[Side, float]  # of the same images before transport
    transported: dict[Side, list[float]]  # [k]


def readability(transport: Transport, task: Task) -> Readability:
    """How well the digits can be read before and after `transport`, computed on the CPU."""
    reader, untouched, transported = digit_reader(), {}, {}
    for origin, store in zip(SIDES, task, strict=True):
        pixels, truth, to = store.images[HELD_OUT], store.labels[HELD_OUT], opposite(origin)
        with torch.inference_mode():
            counterfactuals = as_stored(transport(as_input(pixels), to))
        untouched[to], *transported[to] = [
            float((reader.read(as_input(images)) == truth).float().mean()) for images in (pixels, *counterfactuals)
        ]
    return Readability(untouched, transported)


def digit_reader() -> DigitReader:
    """A copy of the reader, in evaluation mode. The first call trains it in half a minute, with the same result on the
    same machine.

    It learns from the true labels of every second digit of both domains, in random styles that are far more varied than
    those of the domains and independent of the class. Trained on the source domain itself it would read the colour, and
    a change of colour alone would count as a lost digit.
    """
    return copy.deepcopy(_train_reader())


@lru_cache(maxsize=1)
def _train_reader() -> DigitReader:
    images, labels, factors = _training_data()
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


def _training_data() -> tuple[Tensor, Tensor, Tensor]:
    """Images, labels and standardised factors for the training of the reader."""
    rng = np.random.default_rng(digits.DATA_SEED)
    both = [digits.shapes(side) for side in SIDES] * COPIES
    bare = np.concatenate([drawn[TRAINING] for drawn, _, _ in both])
    labels = np.concatenate([truth[TRAINING] for _, truth, _ in both])
    factors = rng.uniform(LOW, HIGH, (len(bare), len(digits.FACTORS)))
    images = digits.render(bare, factors, rng.normal(size=(*bare.shape, 3)))
    standardised = (factors - factors.mean(axis=0)) / factors.std(axis=0)
    return torch.from_numpy(images), torch.from_numpy(labels), torch.from_numpy(standardised).float()
