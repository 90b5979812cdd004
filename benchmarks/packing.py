"""How fast images are packed, against torchvision's decoder alone in the same run.

    python benchmarks/packing.py --images office-home/Art
    python benchmarks/packing.py

The reference reads every file and decodes it (`torchvision.io.read_file` and `decode_jpeg` to RGB) in as many threads
as packing uses, and keeps nothing: it does not resize, hash or write. The second line adds torchvision's resizing to
the stored size (bicubic, antialiased). Packing is all that `tcm data pack` does with one domain: list the folder, read,
hash, decode, resize, write the store and wait for the disk.

The three run in turn, so that other work on the machine slows all alike. Printed are the medians of the images per
second and of the processor time of an image, and their ratios. Without `--images` there are crops of the two
photographs of scikit-learn, of 500 x 375 pixels.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2.functional import resize_image

from tcm.data.folders import read_domain
from tcm.data.packing import open_or_pack
from tcm.data.reading import AT_ONCE, WORKERS

Call: TypeAlias = "Callable[[], TemporaryDirectory[str] | None]"  # it may return a cache, to be removed afterwards

CROP = (500, 375)  # width and height of a usual photograph in a data set


def write_photographs(folder: Path, count: int) -> Path:
    """Random crops of scikit-learn's photographs as JPEG files of quality 90, in ten classes."""
    from sklearn.datasets import load_sample_images

    photographs, rng = load_sample_images().images, np.random.default_rng(0)
    for number in range(count):
        whole = photographs[number % 2]
        top, left = rng.integers(whole.shape[0] - CROP[1]), rng.integers(whole.shape[1] - CROP[0])
        file = folder / f"class {number % 10}" / f"{number:05}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(whole[top : top + CROP[1], left : left + CROP[0]]).save(file, quality=90)
    return folder


def decode_some(files: Sequence[str], size: int | None = None) -> None:
    """Decodes the files one after another, and resizes them if there is a size."""
    for file in files:
        image = decode_jpeg(read_file(file), mode=ImageReadMode.RGB)
        assert isinstance(image, torch.Tensor)  # it returns a list for a list
        if size is not None:
            resize_image(image, [size, size], InterpolationMode.BICUBIC, antialias=True)


def decode_all(files: list[str], size: int | None) -> None:
    """Decodes the files in threads."""
    parts = [files[start : start + AT_ONCE] for start in range(0, len(files), AT_ONCE)]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(partial(decode_some, size=size), parts))


def pack(folder: Path, size: int, place: Path | None) -> "TemporaryDirectory[str]":
    """A new cache with the packed folder."""
    cache = TemporaryDirectory(dir=place)
    open_or_pack(read_domain(folder), size, Path(cache.name), quiet=True)
    return cache


def measured(calls: dict[str, Call], images: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Median images per second, and milliseconds of processor time for an image, of each call."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            elapsed, processor = time.perf_counter(), time.process_time()
            cache = call()
            elapsed, processor = time.perf_counter() - elapsed, time.process_time() - processor
            if cache:
                cache.cleanup()
            found[name] += [(images / elapsed, 1e3 * processor / images)] if turn else []  # the first fills caches
    return {name: (statistics.median(a), statistics.median(b)) for name, (a, b) in _columns(found)}


def _columns(found: dict[str, list[tuple[float, float]]]) -> list[tuple[str, tuple[list[float], list[float]]]]:
    return [(name, ([rate for rate, _ in rows], [cost for _, cost in rows])) for name, rows in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="a folder of JPEG files; default: made from scikit-learn's")
    parser.add_argument("--count", type=int, default=1500, help="images that are made")
    parser.add_argument("--size", type=int, default=256, help="side of the stored images")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--place", type=Path, help="folder for temporary files")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the threads of packing are the only ones
    with TemporaryDirectory(dir=options.place) as made:
        folder = options.images or write_photographs(Path(made), options.count)
        domain = read_domain(folder)
        files = [str(domain.root / path) for path in domain.paths]
        calls: dict[str, Call] = {
            "decode alone": lambda: decode_all(files, None),
            "decode, resize": lambda: decode_all(files, options.size),
            "pack": lambda: pack(folder, options.size, options.place),
        }
        print(f"{len(files)} images, stored at {options.size} x {options.size}, {WORKERS} threads", flush=True)
        found = measured(calls, len(files), options.rounds)
    for name, (rate, cost) in found.items():
        share, share_of_processor = found["pack"][0] / rate, cost / found["pack"][1]
        ratios = f"pack is {share:.2f} of it (by processor time {share_of_processor:.2f})" if name != "pack" else ""
        print(f"{name:15} {rate:7.0f} images/s {cost:7.3f} ms of processor time for an image   {ratios}")


if __name__ == "__main__":
    main()
