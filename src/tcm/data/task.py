"""A domain adaptation task: where its two domains come from, and how images are stored and cropped."""

import dataclasses
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from tcm.data import digits
from tcm.data.augment import View
from tcm.data.domains import Domain, TargetLabels
from tcm.data.folders import read_benchmark_folders, read_plain_folders
from tcm.data.lists import read_lists
from tcm.data.packing import open_or_pack
from tcm.data.pooling import open_or_pool
from tcm.data.remarks import task_remarks
from tcm.data.sources import each, sources_apart
from tcm.data.store import ImageStore, open_store, pack_arrays
from tcm.errors import InputError, printable

T = TypeVar("T")
BUILT_IN = ("digits", "digits-ceiling")
SMALL = 64  # pixels: smaller crops get small networks
SMALLEST = 8  # pixels
LARGEST = 4096  # pixels: a stored image of this side takes 50 MB
HALVED = 4  # default crops are multiples: the networks of mechanisms halve images twice
FORMS = (("root", "source", "target"), ("source_dir", "target_dir"), ("source_list", "target_list"))


@dataclass(frozen=True)
class DataConfig:
    """The two domains: built-in data, or a root folder and two domain names, or two folders, or two list files."""

    benchmark: str | None = None
    """digits: the built-in data. digits-ceiling: its source digits in the style of the target, for comparison."""
    root: Path | None = None
    """Folder with one subfolder per domain, each with one subfolder per class."""
    source: str | tuple[str, ...] | None = None
    """Name of the labelled domain below the root; or several: A,B."""
    target: str | None = None
    """Name of the domain to adapt to, below the root."""
    source_dir: Path | tuple[Path, ...] | None = None
    """Folder of labelled images, one subfolder per class; or several: A,B."""
    target_dir: Path | None = None
    """Folder of images to adapt to, with or without class subfolders."""
    source_list: Path | tuple[Path, ...] | None = None
    """Text file with one line per labelled image: path and label; or several, A,B."""
    target_list: Path | None = None
    """Text file with one line per image to adapt to: path, or path and label."""
    target_labels: TargetLabels = "auto"
    """ignore: read the target without its class folders. Target labels are for evaluation; training never sees them."""
    size: int | None = None
    """Side of the stored images, in pixels. Default: 256, digits 32."""
    crop: int | None = None
    """Side of the crops for training and evaluation, in pixels. Default: 7/8 of the size, as a multiple of 4; digits
    32."""
    flip: bool | None = None
    """Mirror half of the training images. Default: yes, digits no; tcm fit tests the source images."""
    gentle: bool | None = None
    """Strong views with small turns and little cut off. Default: crops below 64 pixels only; tcm fit tests the
    source images."""
    shift: int | None = None
    """How far a training crop may reach over the edge, in pixels. Default: 0, digits 2."""
    area: float | None = None
    """Crop training images with a random size, at least this share of the image's area, and resize to the crop."""
    on_bad_image: Literal["stop", "skip"] = "stop"
    """What to do with an image that cannot be read."""
    cache: Path | None = None
    """Folder for packed images. Default: tcm in the user's cache folder."""

    @property
    def is_digits(self) -> bool:
        """Whether this is the built-in data."""
        return self.benchmark in BUILT_IN

    @property
    def sides(self) -> tuple[int, int]:
        """The sides of stored images and of crops, with defaults filled in."""
        size = _or(self.size, 32 if self.is_digits else 256)
        cut = max(size * 7 // 8 // HALVED * HALVED, SMALLEST)
        return size, _or(self.crop, size if self.is_digits else cut)

    @property
    def is_small(self) -> bool:
        """Whether the crops are so small that small networks suit them."""
        return self.sides[1] < SMALL

    def resolved(self) -> "DataConfig":
        """This config with every default filled in, every path absolute, and several sources as a tuple."""
        self._require_known_data()
        size, crop = self.sides
        shift = _or(self.shift, 2 if self.is_digits and self.area is None else 0)
        self._require_sizes(size, crop, shift)
        if self.cache is not None and os.path.isfile(self.cache):
            raise InputError("data.cache", f"{printable(self.cache)} is a file; name a folder")
        paths = ("root", "source_dir", "target_dir", "source_list", "target_list", "cache")
        flip = _or(self.flip, not self.is_digits)
        config = self.with_sources_apart()
        absolute = {name: _absolute(getattr(config, name)) for name in paths}
        return dataclasses.replace(config, size=size, crop=crop, shift=shift, flip=flip, **absolute)

    def with_sources_apart(self) -> "DataConfig":
        """This config with a tuple for several sources that are one text with commas."""
        root = (self.root or Path()).expanduser()
        apart = {
            "source": sources_apart("source", self.source, lambda name: os.path.isdir(root / name)),
            "source_dir": sources_apart("source_dir", self.source_dir, lambda path: os.path.exists(path.expanduser())),
            "source_list": sources_apart(
                "source_list", self.source_list, lambda path: os.path.exists(path.expanduser())
            ),
        }
        return dataclasses.replace(self, **apart)

    def _require_known_data(self) -> None:
        if self.benchmark is not None and not self.is_digits:
            found = f'is "{printable(self.benchmark)}", which is not built-in data'
            raise InputError("data.benchmark", f"{found}; give {' or '.join(BUILT_IN)}")
        if self.is_digits and any(getattr(self, name) for form in FORMS for name in form):
            remedy = "leave out `data.benchmark`, or the folders and lists"
            raise InputError("data.benchmark", f"{self.benchmark} needs no other data; {remedy}")

    def _require_sizes(self, size: int, crop: int, shift: int) -> None:
        if not SMALLEST <= size <= LARGEST or (self.is_digits and size != digits.SIZE):
            usual = f"give {SMALLEST} or more" if size < SMALLEST else f"give {LARGEST} or less"
            remedy = f"give {digits.SIZE}, the size of the digits" if self.is_digits else usual
            raise InputError("data.size", f"is {size}; {remedy}")
        if not SMALLEST <= crop <= size:
            found = f"is {crop}, but images are stored with side {size}"
            raise InputError("data.crop", f"{found}; give {SMALLEST} to {size}")
        if not 0 <= shift < crop:
            raise InputError("data.shift", f"is {shift}; give 0 to {crop - 1}")
        if self.area is not None and not 0 < self.area <= 1:
            raise InputError("data.area", f"is {self.area}; give a share of the image, more than 0 and at most 1")
        if self.area is not None and shift:
            raise InputError("data.shift", "is for crops of one size; leave it out, or `data.area`")

    @property
    def view(self) -> View:
        """How training images are cropped."""
        config = self.resolved()
        assert config.crop is not None
        assert config.flip is not None
        assert config.shift is not None
        return View(config.crop, config.flip, config.shift, config.area)


class Task(NamedTuple):
    """The packed images of both domains. The classes are those of the source."""

    source: ImageStore
    target: ImageStore


def read_domains(config: DataConfig) -> tuple[Domain, Domain]:
    """The files and labels of both domains, from whichever of FORMS the config gives."""
    config = config.with_sources_apart()
    # A root may come with list files, whose paths are then relative to it.
    lists = config.source_list is not None or config.target_list is not None
    forms = [form for form in FORMS if not (lists and "root" in form)]
    given = [form for form in forms if any(getattr(config, name) for name in form)]
    if len(given) != 1:
        found = f"both {' and '.join(map(_mentioned, given))} are given" if given else "no data is given"
        raise InputError(f"{found}; give one of: `data.benchmark=digits`; {'; '.join(map(_mentioned, FORMS))}")
    if not all(getattr(config, name) for name in given[0]):
        raise InputError(f"only a part of the data is given; give all of {_mentioned(given[0])}")
    if config.source_list and config.target_list:
        return read_lists(config.source_list, config.target_list, config.root, config.target_labels)
    if config.source_dir and config.target_dir:
        return read_plain_folders(config.source_dir, config.target_dir, config.target_labels)
    assert config.root
    assert config.source
    assert config.target
    return read_benchmark_folders(config.root, config.source, config.target, config.target_labels)


def load_task(config: DataConfig, quiet: bool = False) -> Task:
    """The image stores of the task, packed first where they are not in the cache."""
    config = config.resolved()
    cache = config.cache or default_cache()
    if config.is_digits:
        style = "target" if config.benchmark == "digits-ceiling" else "source"
        return Task(digits_store("source", cache, style), digits_store("target", cache))
    source, target = (_store(domain, config, cache, quiet) for domain in read_domains(config))
    for remark in task_remarks(source, target):
        warnings.warn(remark, UserWarning, stacklevel=2)
    return Task(source, target)


def _store(domain: Domain, config: DataConfig, cache: Path, quiet: bool) -> ImageStore:
    """The packed images of a domain. Every source of a pool is packed by itself, so that it can be in other pools."""
    if domain.parts:
        parts = [_store(part, config, cache, quiet) for part in domain.parts]
        return open_or_pool(domain.name, parts, cache, quiet)
    assert config.size is not None
    return open_or_pack(domain, config.size, cache, on_bad_image=config.on_bad_image, quiet=quiet)


def digits_store(side: digits.Side, cache: Path, style: digits.Side | None = None) -> ImageStore:
    """A domain of the built-in data as a store, whose `extra` holds the factors."""
    folder = cache / f"digits-{digits.fingerprint()}-{side}-{style or side}"
    try:
        return open_store(folder)
    except InputError:
        made = digits.domain(side, style)
    paths = [f"{label}/{number:04d}.png" for label, number in zip(made.labels, made.numbers, strict=True)]
    name = f"digits {side}" if style in (None, side) else f"digits {side} in {style} style"
    extra = {"factors": made.factors, "numbers": made.numbers, "names": np.array(digits.FACTORS)}
    return pack_arrays(name, made.images, made.labels, digits.CLASSES, paths, folder, extra)


def default_cache() -> Path:
    """tcm in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tcm"


def _mentioned(form: tuple[str, ...]) -> str:
    """The fields of a form, for a message."""
    *first, last = (f"`data.{name}`" for name in form)
    return f"{', '.join(first)} and {last}"


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _absolute(path: Path | tuple[Path, ...] | None) -> Path | tuple[Path, ...] | None:
    if path is None:
        return None
    found = tuple(Path(os.path.abspath(one.expanduser())) for one in each(path))
    return found if isinstance(path, tuple) else found[0]
