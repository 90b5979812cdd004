"""Whether mirrored images keep their class, asked of images for which the answer is known.

python benchmarks/mirrored.py --office-home office-home --weights resnet50.safetensors --to mirrored.csv
"""

import argparse
import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits
from torch import Tensor

from tcm.classifier.augmentation_evidence import evidence_of
from tcm.data.task import DataConfig, load_task
from tcm.nn.backbone import Backbone, BackboneConfig

FONTS = ("DejaVuSans", "DejaVuSerif", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSerif-Italic")  # matplotlib has them
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DRAWN = 128  # pixels at which letters and arrows are drawn
NOISE = 8  # standard deviation, of 255 levels
SMALL = DataConfig(source_dir=Path("source"), target_dir=Path("target"), size=32)


class Case(NamedTuple):
    """Labelled images, the data options of a run on them, and a pretrained network if they are photographs."""

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    config: DataConfig
    backbone: Backbone | None = None


def glyphs() -> Iterator[Case]:
    """Images whose mirror images are other ones, or none."""
    source = load_task(DataConfig(benchmark="digits"), quiet=True).source
    yield Case("built-in digits", source.images, source.labels, source.classes, SMALL)
    pixels, labels = load_digits(return_X_y=True)
    large = np.kron(np.reshape(pixels, (-1, 8, 8)), np.ones((4, 4)))[..., None].repeat(3, axis=3) * 255 / 16
    digits = torch.from_numpy(large.astype(np.uint8))
    yield Case("scikit-learn's digits", digits, torch.from_numpy(labels), tuple("0123456789"), SMALL)
    for side, config in ((32, SMALL), (DRAWN, dataclasses.replace(SMALL, size=DRAWN))):
        yield Case(f"letters at {side} pixels", *letters(780, side), tuple(LETTERS), config)
        yield Case(f"arrows at {side} pixels", *arrows(300, side), ("left", "right"), config)


def letters(count: int, side: int) -> tuple[Tensor, Tensor]:
    """Capital letters in five fonts, a little moved and turned."""
    rng, images = np.random.default_rng(0), []
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for number in range(count):
        ground, ink = colours(rng)
        image = Image.new("RGB", (DRAWN, DRAWN), ground)
        font = ImageFont.truetype(str(folder / f"{rng.choice(FONTS)}.ttf"), int(rng.integers(70, 100)))
        place = tuple((64 + rng.integers(-8, 9, 2)).tolist())
        ImageDraw.Draw(image).text(place, LETTERS[number % len(LETTERS)], font=font, fill=ink, anchor="mm")
        images.append(image.rotate(rng.uniform(-8, 8), fillcolor=ground))
    return noisy(images, side, rng), torch.arange(count) % len(LETTERS)


def arrows(count: int, side: int) -> tuple[Tensor, Tensor]:
    """Arrows to the left (0) and to the right (1), a little moved, of several lengths."""
    rng, images = np.random.default_rng(0), []
    for number in range(count):
        ground, ink = colours(rng)
        image = Image.new("RGB", (DRAWN, DRAWN), ground)
        pen, (x, y), way = ImageDraw.Draw(image), 64 + rng.uniform(-10, 10, 2), 1 if number % 2 else -1
        length, head = rng.uniform(32, 50), rng.uniform(16, 26)
        tip = x + way * length
        pen.line([(x - way * length, y), (tip, y)], fill=ink, width=8)
        pen.polygon([(tip, y), (tip - way * head, y - head), (tip - way * head, y + head)], fill=ink)
        images.append(image)
    return noisy(images, side, rng), torch.arange(count) % 2


def colours(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A light and a dark colour."""
    return tuple(rng.integers(120, 255, 3).tolist()), tuple(rng.integers(0, 100, 3).tolist())


def noisy(images: list[Image.Image], side: int, rng: np.random.Generator) -> Tensor:
    """The images at side x side with pixel noise: uint8 [n, side, side, 3]."""
    pixels = np.stack([np.asarray(image.resize((side, side), Image.Resampling.BICUBIC)) for image in images])
    return torch.from_numpy((pixels + rng.normal(0, NOISE, pixels.shape)).clip(0, 255).astype(np.uint8))


def photographs(root: Path, weights: Path) -> Iterator[Case]:
    """Office-Home, all classes and the first ten, with and without a pretrained network."""
    backbone = BackboneConfig(weights=weights).resolved(small_images=False).build()
    for source, target in (("Art", "Clipart"), ("Clipart", "Art"), ("Real World", "Art")):
        config = DataConfig(root=root, source=source, target=target)
        images, labels, classes = (task := load_task(config).source).images, task.labels, task.classes
        few = labels < 10
        yield Case(f"Office-Home {source}, 65 classes", images, labels, classes, config, backbone)
        yield Case(f"Office-Home {source}, 10 classes", images[few], labels[few], classes, config, backbone)
        yield Case(f"Office-Home {source}, 10 classes, no weights", images[few], labels[few], classes, config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--office-home", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--to", type=Path)
    options = parser.parse_args()
    cases = [glyphs()] + ([photographs(options.office_home, options.weights)] if options.office_home else [])
    rows = []
    for case in (case for group in cases for case in group):
        found = evidence_of(case.images, case.labels, case.classes, case.config, case.backbone, quiet=True)
        for change, one in (("mirrored", found.mirrored), ("strong", found.strong)):
            numbers = (f"{one.before:.4f}", f"{one.after:.4f}", f"{one.p_value:.2g}")
            rows.append((case.name, found.classifier, change, one.images, *numbers, one.keeps_class))
            print(*rows[-1], sep=", ", flush=True)
    if options.to:
        with options.to.open("w", newline="") as file:
            csv.writer(file).writerows(
                [("case", "classifier", "change", "images", "before", "after", "p", "kept"), *rows]
            )


if __name__ == "__main__":
    main()
