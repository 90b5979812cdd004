"""The packed images of several sources as one store in the cache."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tcm.data.cache import atomic_folder
from tcm.data.store import (
    FORMAT,
    ImageStore,
    PooledSource,
    StoreIndex,
    digest,
    format_of,
    open_if_complete,
    open_store,
    same_store,
)
from tcm.errors import printable
from tcm.progress import ProgressDisplay

AT_ONCE = 256  # images that are copied together


def open_or_pool(name: str, parts: Sequence[ImageStore], cache: Path, quiet: bool = False) -> ImageStore:
    """The images of several packed sources as one store, from the cache if it is there, else copied into it first.

    A copy, because everything that reads images takes one memory-mapped array.
    """
    first = parts[0]
    labels = [part.classes[label] for part in parts for label in part.labels.tolist()]
    key = digest("pool", FORMAT, [[part.name, part.fingerprint] for part in parts], labels)
    store = open_if_complete(cache / key)
    if store is None:
        sizes = [list(size) for part in parts for size in part.original_sizes]
        index = StoreIndex(
            name=name,
            size=first.size,
            classes=list(first.classes),
            paths=[f"{part.name}/{path}" for part in parts for path in part.paths],
            labels=list(labels),
            original_sizes=sizes,
            hashes=[content for part in parts for content in part.hashes],
            skipped=[[f"{part.name}/{path}", reason] for part in parts for path, reason in part.skipped],
            format=format_of(sizes, first.size),
        )
        store = _copied(index, parts, cache / key, quiet)
    sources = tuple(PooledSource(part.name, len(part)) for part in parts)
    numbers = torch.cat([part.labels for part in parts])
    return replace(store, name=name, classes=first.classes, labels=numbers, sources=sources)


def _copied(index: StoreIndex, parts: Sequence[ImageStore], folder: Path, quiet: bool) -> ImageStore:
    """The store at `folder` with the images of the parts in their order."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(index.paths), index.size, index.size, 3)}
    done, title = 0, f"pooling {printable(index.name)}"
    with (
        atomic_folder(folder, same_store) as temporary,
        (temporary / "images.npy").open("wb") as file,
        ProgressDisplay(title, len(index.paths), unit="image", quiet=quiet) as display,
    ):
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            for some in part.images.split(AT_ONCE):
                file.write(some.numpy().data)
                done += len(some)
                display.update(done)
        index.write(temporary)
    return open_store(folder)
