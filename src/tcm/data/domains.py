"""Two domains of images whose classes have been matched by name."""

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tcm.errors import InputError, printable

TargetLabels = Literal["auto", "ignore"]

IGNORE_REMEDY = "set `data.target_labels=ignore` to read the target without labels"


@dataclass(frozen=True)
class Domain:
    """The images of one domain, with labels where they are known."""

    name: str
    root: Path  # the paths are relative to it
    paths: tuple[str, ...]  # POSIX, sorted
    labels: tuple[int, ...]  # index into classes, -1 where unknown
    classes: tuple[str, ...]
    parts: tuple["Domain", ...] = ()  # of several pooled sources, each by itself, in their order

    @property
    def class_names(self) -> list[str | None]:
        """The class of every image by name, None where unknown."""
        return [self.classes[label] if label >= 0 else None for label in self.labels]


@dataclass(frozen=True)
class Listing:
    """The images of one domain with the class names found on disk, before two domains are matched."""

    name: str
    where: Path  # the folder or list file, for messages
    root: Path
    entries: tuple[tuple[str, str | None], ...]  # path, class name or None

    @property
    def place(self) -> str:
        """Where the images are, for messages."""
        return printable(self.where)

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names that occur, sorted; numbers by value."""
        return tuple(sorted({name for _, name in self.entries if name is not None}, key=class_order))

    @property
    def class_counts(self) -> dict[str, int]:
        """The number of images of each class that occurs."""
        return Counter(name for _, name in self.entries if name is not None)

    def unlabelled(self) -> "Listing":
        """The same images without class names."""
        return Listing(self.name, self.where, self.root, tuple((path, None) for path, _ in self.entries))

    def domain(self, classes: tuple[str, ...], own_names: dict[str, str] | None = None) -> Domain:
        """The domain with labels that index `classes`; `own_names` maps this listing's class names to those."""
        number = {name: index for index, name in enumerate(classes)} | {None: -1}
        renamed = own_names or {}
        entries = sorted(self.entries, key=lambda entry: entry[0])
        labels = tuple(number[renamed.get(name, name) if name is not None else None] for _, name in entries)
        return Domain(self.name, self.root, tuple(path for path, _ in entries), labels, classes)


def plain_name(name: str) -> str:
    """The name without case, spaces, underscores and hyphens, with accents in one form, to compare spellings."""
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", name)).casefold()


def joined_names(names: Collection[str], limit: int = 8) -> str:
    """The first `limit` names with commas, and how many more there are."""
    first = ", ".join(printable(name) for name in list(names)[:limit])
    return first if len(names) <= limit else f"{first} and {len(names) - limit} more"


def folder_names(folders: Sequence[Path]) -> list[str]:
    """The last parts of each folder's path, as many as are needed to make the names of different folders differ."""
    parts = [folder.resolve().parts for folder in folders]
    tails = ([str(Path(*part[-count:])) for part in parts] for count in range(1, max(map(len, parts)) + 1))
    return next(names for names in tails if len(set(names)) == len(set(parts)))


def match_classes(source: Listing, target: Listing) -> tuple[Domain, Domain]:
    """The two domains with labels that index the source's classes; the target's classes are matched by name."""
    classes = source.classes
    if len(classes) < 2:
        raise InputError(f"the source {source.place} has only one class, {joined_names(classes)}; give two or more")
    counts = source.class_counts
    alone = [name for name in classes if counts[name] == 1]
    if alone:
        found = f"has only one image for {len(alone)} of its {len(classes)} classes: {joined_names(alone)}"
        warnings.warn(f"the source {source.place} {found}; add images of them", UserWarning, stacklevel=3)
    own_names = {name: found[0] for name in target.classes if len(found := same_name(name, classes)) == 1}
    unknown = [name for name in target.classes if name not in own_names]
    missing = [name for name in classes if name not in own_names.values()]
    if unknown:
        lacking = f"; it has no images of the source's {joined_names(missing)}" if missing else ""
        raise InputError(
            f"the target {target.place} has classes that the source {source.place} does not have"
            f": {joined_names(unknown)}{lacking}; rename or remove them, or {IGNORE_REMEDY}"
        )
    if target.classes and missing:
        found = f"has no images of {len(missing)} of the {len(classes)} source classes: {joined_names(missing)}"
        warnings.warn(f"the target {target.place} {found}", UserWarning, stacklevel=3)
    if not target.classes and len(target.entries) < len(classes):
        found = f"has {len(target.entries)} images, fewer than the {len(classes)} source classes"
        warnings.warn(f"the target {target.place} {found}; adaptation needs more", UserWarning, stacklevel=3)
    return source.domain(classes), target.domain(classes, own_names)


def same_name(name: str, options: Collection[str]) -> list[str]:
    """Those of the options that have this name: the exact one, else all that differ in spelling only."""
    return [name] if name in options else [option for option in options if plain_name(option) == plain_name(name)]


def class_order(name: str) -> tuple[bool, int, str]:
    """The key by which classes are sorted: numbers by value, then names."""
    is_number = re.fullmatch(r"-?[0-9]+", name) is not None
    return (not is_number, int(name) if is_number else 0, name)
