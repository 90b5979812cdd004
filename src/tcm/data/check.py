"""Reads every file of a data set once and reports what is wrong."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tcm.data.benchmarks import Benchmark, recognise_benchmark
from tcm.data.domains import Domain, joined_names
from tcm.data.duplicates import HASH, same_content, same_content_in_several
from tcm.data.folders import domain_folders, existing_folder, files_below, read_domain
from tcm.data.images import BadImage, is_image, read_image
from tcm.data.layouts import listed_domains
from tcm.data.reading import read_all
from tcm.data.remarks import FEW, TINY
from tcm.errors import InputError, printable

SHOWN = 20  # entries of a list that are printed; the rest is counted


class Size(NamedTuple):
    """Width and height of an image in pixels."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width} x {self.height}"


@dataclass(frozen=True)
class DomainCheck:
    """What one domain contains."""

    name: str
    root: Path
    images: int  # all files named like images, readable or not
    class_counts: dict[str, int]
    sizes: tuple[Size, Size, Size] | None  # of the smallest, the median and the largest image, None if none is readable
    bad: list[tuple[str, str]]  # path and reason
    not_images: list[str]
    paths: Sequence[str]  # of the readable images
    hashes: NDArray[np.bytes_]  # the hash of each readable image

    @property
    def duplicates(self) -> list[list[str]]:
        """Groups of paths with the same bytes."""
        return [[self.paths[row] for row in rows] for rows in same_content(self.hashes)]

    @property
    def largest_class(self) -> tuple[str, int] | None:
        """Name and number of images of the largest class, None without classes."""
        return max(self.class_counts.items(), key=lambda item: item[1], default=None)

    @property
    def smallest_class(self) -> tuple[str, int] | None:
        """Name and number of images of the smallest class, None without classes."""
        return min(self.class_counts.items(), key=lambda item: item[1], default=None)


@dataclass(frozen=True)
class Check:
    """What several domains contain, and how they differ from a known benchmark."""

    domains: list[DomainCheck]
    shared: list[list[str]]  # groups of domain/path with the same bytes in several domains
    benchmark: Benchmark | None
    differences: list[str]  # one line each

    @property
    def problems(self) -> bool:
        """Whether a file cannot be read or a known benchmark is not complete."""
        return bool(self.differences or any(domain.bad for domain in self.domains))

    @property
    def summary(self) -> str:
        """The result in one or two sentences."""
        if any(domain.bad for domain in self.domains):
            return "There are problems, see above. Remove what cannot be read, or train with `data.on_bad_image=skip`."
        if self.problems:
            return "There are problems, see above."
        if self.shared:
            found = "Every image can be read, but domains share images, see above"
            return f"{found}: a target that shares images with a source is not new data."
        return "No problems found."


def check_root(root: Path, quiet: bool = False) -> Check:
    """The check of every domain of root/<domain>/<class>/<image>, or of a benchmark with list files."""
    root = existing_folder(root)
    folders = domain_folders(root)
    if not folders:
        raise InputError(f"{printable(root)} has no subfolder with images; <root>/<domain>/<class>/<image> is expected")
    domains = [read_domain(folder) for folder in folders]
    # ImageCLEF-DA has images outside class folders: its lists have the classes.
    if any(-1 in domain.labels for domain in domains):
        domains = listed_domains(root) or domains
    return check(domains, root_name=root.name, quiet=quiet)


def check(domains: Sequence[Domain], root_name: str = "", quiet: bool = False) -> Check:
    """The check of these domains; `root_name` helps to recognise a benchmark."""
    checks = [check_domain(domain, quiet) for domain in domains]
    images = {domain.name: domain.images for domain in checks}
    classes = {domain.name: domain.class_counts for domain in checks}
    benchmark = recognise_benchmark(root_name, images, max(map(len, classes.values()), default=0))
    differences = benchmark.differences(images, classes) if benchmark else []
    return Check(checks, _shared(checks), benchmark, differences)


def check_domain(domain: Domain, quiet: bool = False) -> DomainCheck:
    """The check of one domain: every image is decoded."""
    # Arrays, not objects: a data set may have a million images.
    sizes, hashes = np.full((len(domain.paths), 2), -1, dtype=np.int32), np.empty(len(domain.paths), HASH)
    bad: list[tuple[str, str]] = []
    read = partial(_size_and_hash, domain.root)
    for row, found in enumerate(read_all(read, domain.paths, f"checking {domain.name}", quiet=quiet)):
        if isinstance(found, BadImage):
            bad.append((domain.paths[row], str(found)))
        else:
            sizes[row], hashes[row] = found
    readable = sizes[:, 0] >= 0
    return DomainCheck(
        name=domain.name,
        root=domain.root,
        images=len(domain.paths),
        class_counts=dict(Counter(name for name in domain.class_names if name is not None)),
        sizes=_three_sizes(sizes[readable]),
        bad=bad,
        not_images=sorted(path for path in files_below(domain.root) if not is_image(path)),
        paths=list(compress(domain.paths, readable)) if bad else domain.paths,
        hashes=hashes[readable],
    )


def _three_sizes(sizes: NDArray[np.int32]) -> tuple[Size, Size, Size] | None:
    """The sizes of the smallest, the median and the largest image; None if there is none."""
    if not len(sizes):
        return None
    order = sizes.prod(axis=1, dtype=np.int64).argsort(kind="stable")
    smallest, median, largest = (Size(*sizes[order[place]].tolist()) for place in (0, len(sizes) // 2, -1))
    return smallest, median, largest


def render(result: Check) -> RenderableType:
    """The check as a table with one row per domain, and one list per kind of finding."""
    table = Table("domain", "images", "classes", "largest class", "smallest class", "sizes: smallest, median, largest")
    for domain in result.domains:
        table.add_row(*map(Text, _row(domain)))
    parts: list[RenderableType] = [table]
    for domain in result.domains:
        name = printable(domain.name)
        parts += _list(f"{name}: cannot be read", [f"{printable(path)}: {reason}" for path, reason in domain.bad])
        parts += _list(f"{name}: ignored, not images", map(printable, domain.not_images))
        parts += _list(f"{name}: the same bytes", [" = ".join(map(printable, group)) for group in domain.duplicates])
    parts += _list("the same bytes in several domains", [" = ".join(map(printable, group)) for group in result.shared])
    parts += _list("doubtful", [remark for domain in result.domains for remark in _doubts(domain)])
    parts += _list("not as published", result.differences)
    if result.benchmark and not result.differences:
        parts.append(Text(f"The numbers of images and classes are those of {result.benchmark.name}."))
    return Group(*parts)


def _doubts(domain: DomainCheck) -> list[str]:
    """What can be trained on, but should not be there."""
    found, name = list[str](), printable(domain.name)
    if domain.sizes and min(domain.sizes[0]) < TINY:
        found.append(f"{name}: the smallest image has {domain.sizes[0]} pixels; less than {TINY} show nothing")
    few = [label for label, count in domain.class_counts.items() if count < FEW]
    if few:
        found.append(f"{name}: fewer than {FEW} images of {joined_names(few)}")
    return found


def _size_and_hash(root: Path, path: str) -> tuple[tuple[int, int], str] | BadImage:
    pixels, content = read_image(os.path.join(root, path))
    return pixels if isinstance(pixels, BadImage) else ((pixels.shape[1], pixels.shape[0]), str(content))


def _shared(checks: Sequence[DomainCheck]) -> list[list[str]]:
    groups = same_content_in_several([domain.hashes for domain in checks])
    return [[f"{checks[number].name}/{checks[number].paths[row]}" for number, row in group] for group in groups]


def _row(domain: DomainCheck) -> list[str]:
    largest, smallest = domain.largest_class, domain.smallest_class
    classes = [f"{printable(found[0])} ({found[1]})" if found else "-" for found in (largest, smallest)]
    # One size if all images have the same.
    alike = domain.sizes is not None and domain.sizes[0] == domain.sizes[2]
    sizes = ", ".join(map(str, domain.sizes[:1] if alike else domain.sizes)) if domain.sizes else "-"
    count = str(len(domain.class_counts)) if domain.class_counts else "no labels"
    return [printable(domain.name), str(domain.images), count, *classes, sizes]


def _list(title: str, entries: Iterable[str]) -> list[Text]:
    lines = list(entries)
    if not lines:
        return []
    more = [f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    heading = Text(f"\n{title} ({len(lines)})", style="bold")
    return [heading, *(Text(line) for line in [*(f"  {line}" for line in lines[:SHOWN]), *more])]
