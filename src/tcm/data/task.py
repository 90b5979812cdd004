"""A domain adaptation task: where its two domains come from and how their images are stored and cut."""

import dataclasses
import os
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
from tcm.data.store import ImageStore, open_store, pack_arrays
from tcm.errors import InputError, printable

T = TypeVar("T")
BUILT_IN = ("digits", "digits-ceiling")
SMALL = 64  # pixels: crops below it get small networks


@dataclass(frozen=True)
class DataConfig:
    """The two domains: --data.benchmark digits, or a root and two domain names, or two folders, or two list files."""

    benchmark: str | None = None
    """digits: the built-in data. digits-ceiling: its source digits in the target's style, the best to hope for."""
    root: Path | None = None
    """Folder with one subfolder per domain, each with one subfolder per class."""
    source: str | None = None
    """Name of the labelled domain below the root."""
    target: str | None = None
    """Name of the domain to adapt to, below the root."""
    source_dir: Path | None = None
    """Folder of labelled images, one subfolder per class."""
    target_dir: Path | None = None
    """Folder of images to adapt to, with or without class subfolders."""
    source_list: Path | None = None
    """Text file with a line `path label` per labelled image."""
    target_list: Path | None = None
    """Text file with a line `path` or `path label` per image to adapt to."""
    target_labels: TargetLabels = "auto"
    """ignore: read the target without its class folders. Target labels score evaluations; training never sees them."""
    size: int | None = None
    """Side to which images are resized for the store. Default: 256, digits 32."""
    crop: int | None = None
    """Side of the square that training and evaluation cut out. Default: 7/8 of the size, digits all of it."""
    flip: bool | None = None
    """Mirror half of the training images. Default: yes, digits no."""
    shift: int | None = None
    """How far a training crop may reach over the edge, in pixels. Default: 0, digits 2."""
    area: float | None = None
    """Cut training images out as parts of random size, at least this share of the area, resized to the crop."""
    on_bad_image: Literal["stop", "skip"] = "stop"
    """What to do with an image that cannot be read."""
    cache: Path | None = None
    """Where packed images are kept. Default: tcm in the user's cache folder."""

    @property
    def is_digits(self) -> bool:
        """Whether this is the built-in data."""
        return self.benchmark in BUILT_IN

    @property
    def sides(self) -> tuple[int, int]:
        """Of stored images and of the square that is cut out, with the defaults filled in."""
        size = _or(self.size, 32 if self.is_digits else 256)
        return size, _or(self.crop, size if self.is_digits else size * 7 // 8)

    @property
    def is_small(self) -> bool:
        """Whether small networks suit the images, the built-in ones among them."""
        return self.sides[1] < SMALL

    def resolved(self) -> "DataConfig":
        """This config with every default filled in and every path absolute."""
        if self.benchmark is not None and not self.is_digits:
            raise InputError(
                f'--data.benchmark: there is no built-in data "{self.benchmark}"; there is {" and ".join(BUILT_IN)}'
            )
        elsewhere = (self.root, self.source, self.target)
        elsewhere += (self.source_dir, self.target_dir, self.source_list, self.target_list)
        if self.is_digits and any(elsewhere):
            raise InputError("--data.benchmark digits needs no other data; leave it out, or the folders and lists")
        size, crop = self.sides
        shift = _or(self.shift, 2 if self.is_digits and self.area is None else 0)
        if size < 8 or (self.is_digits and size != digits.SIZE):
            raise InputError(
                f"--data.size is {size}; give {'32, the size of the digits' if self.is_digits else '8 or more'}"
            )
        if not 8 <= crop <= size:
            raise InputError(f"--data.crop is {crop}, but images are stored with side {size}; give 8 to {size}")
        if not 0 <= shift < crop:
            raise InputError(f"--data.shift is {shift}; give 0 to {crop - 1}")
        if self.area is not None and not 0 < self.area <= 1:
            raise InputError(f"--data.area is {self.area}; give a share of the image, more than 0 and at most 1")
        if self.area is not None and shift:
            raise InputError("--data.shift is for crops of one size; leave it out, or --data.area")
        if self.cache is not None and os.path.isfile(self.cache):
            raise InputError(f"--data.cache {printable(self.cache)} is a file; name a folder")
        paths = ("root", "source_dir", "target_dir", "source_list", "target_list", "cache")
        absolute = {name: _absolute(getattr(self, name)) for name in paths}
        flip = _or(self.flip, not self.is_digits)
        return dataclasses.replace(self, size=size, crop=crop, shift=shift, flip=flip, **absolute)

    @property
    def view(self) -> View:
        """How training images are cut."""
        config = self.resolved()
        assert config.crop is not None
        assert config.flip is not None
        assert config.shift is not None
        return View(config.crop, config.flip, config.shift, config.area)


class Task(NamedTuple):
    """The packed images of both domains. Classes are the source's."""

    source: ImageStore
    target: ImageStore


def read_domains(config: DataConfig) -> tuple[Domain, Domain]:
    """The two domains' files and labels, by whichever of the three forms the config gives."""
    forms = {
        "--data.root, --data.source and --data.target": (config.root, config.source, config.target),
        "--data.source-dir and --data.target-dir": (config.source_dir, config.target_dir),
        "--data.source-list and --data.target-list": (config.source_list, config.target_list),
    }
    # A root may stand beside list files: their paths are relative to it.
    lists = config.source_list is not None or config.target_list is not None
    given = [form for form, parts in forms.items() if any(parts) and not (lists and "--data.root" in form)]
    if len(given) != 1:
        found = f"both {' and '.join(given)} are given" if given else "no data is given"
        raise InputError(f"{found}; give one of: --data.benchmark digits; {'; '.join(forms)}")
    if not all(part for part in forms[given[0]]):
        raise InputError(f"the data is given in part; give all of {given[0]}")
    if config.source_list and config.target_list:
        return read_lists(config.source_list, config.target_list, config.root, config.target_labels)
    if config.source_dir and config.target_dir:
        return read_plain_folders(config.source_dir, config.target_dir, config.target_labels)
    assert config.root
    assert config.source
    assert config.target
    return read_benchmark_folders(config.root, config.source, config.target, config.target_labels)


def load_task(config: DataConfig, quiet: bool = False) -> Task:
    """The task's image stores, packed first if need be."""
    config = config.resolved()
    cache = config.cache or default_cache()
    if config.is_digits:
        style = "target" if config.benchmark == "digits-ceiling" else "source"
        return Task(digits_store("source", cache, style), digits_store("target", cache))
    assert config.size is not None
    source, target = (
        open_or_pack(domain, config.size, cache, on_bad_image=config.on_bad_image, quiet=quiet)
        for domain in read_domains(config)
    )
    return Task(source, target)


def digits_store(side: digits.Side, cache: Path, style: digits.Side | None = None) -> ImageStore:
    """A domain of the built-in data as a store, with its factors beside it."""
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


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else Path(os.path.abspath(path.expanduser()))
