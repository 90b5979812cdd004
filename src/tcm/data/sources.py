"""Several labelled folders or lists as one source, before any image is opened."""

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tcm.data.domains import Domain, Listing, class_order, folder_names, joined_names, same_name
from tcm.errors import InputError, printable

T = TypeVar("T")
Source = TypeVar("Source", str, Path)


def each(value: T | tuple[T, ...]) -> tuple[T, ...]:
    """The value as a tuple; a tuple is several values already."""
    return value if isinstance(value, tuple) else (value,)


def sources_apart(
    field: str, value: Source | tuple[Source, ...] | None, exists: Callable[[Source], bool]
) -> Source | tuple[Source, ...] | None:
    """The sources of a text with commas as a tuple; one source as it is. What exists may have commas in its name."""
    if value is None or (not isinstance(value, tuple) and ("," not in str(value) or exists(value))):
        return value
    texts = [str(one) for one in value] if isinstance(value, tuple) else str(value).split(",")
    parts = [text.strip() for text in texts]
    if not parts or "" in parts:
        found = f'has an empty entry in "{printable(",".join(texts))}"'
        raise InputError(f"data.{field}", f"{found}; name the sources with a comma between two of them")
    kind = type(each(value)[0])
    return tuple(map(kind, parts)) if len(parts) > 1 else kind(parts[0])


@dataclass(frozen=True)
class PooledListing(Listing):
    """The images of several sources, whose classes have been matched by name."""

    parts: tuple[Listing, ...] = ()

    @property
    def place(self) -> str:
        """Where the images are, for messages."""
        return " + ".join(part.place for part in self.parts)

    def domain(self, classes: tuple[str, ...], own_names: dict[str, str] | None = None) -> Domain:
        """The domain with labels that index `classes`, and each source by itself in its `parts`."""
        parts = tuple(part.domain(classes, own_names) for part in self.parts)
        # Absolute, because the sources may lie anywhere: root / path is then the path.
        paths = tuple((part.root / path).as_posix() for part in parts for path in part.paths)
        labels = tuple(label for part in parts for label in part.labels)
        return Domain(self.name, self.root, paths, labels, classes, parts)


def pooled(sources: Sequence[Listing], target: Listing) -> Listing:
    """The sources as one; one source stays as it is. Classes have the spelling of the first source that has them."""
    if len(sources) == 1:
        return sources[0]
    _require_distinct(sources, target)
    spellings: list[str] = []
    parts = []
    for source, name in zip(sources, _names(sources), strict=True):
        own = {found: _known(found, spellings) for found in source.classes}
        spellings += [spelling for spelling in own.values() if spelling not in spellings]
        entries = tuple((path, None if found is None else own[found]) for path, found in source.entries)
        parts.append(replace(source, name=name, entries=entries))
    for part in parts:
        _report_missing(part, spellings)
    entries = tuple(entry for part in parts for entry in part.entries)
    name = "+".join(part.name for part in parts)
    return PooledListing(name, parts[0].where, parts[0].root, entries, tuple(parts))


def _require_distinct(sources: Sequence[Listing], target: Listing) -> None:
    """An error if a source is there twice, or is the target."""
    places = [os.path.realpath(source.where) for source in sources]
    for number, (source, place) in enumerate(zip(sources, places, strict=True)):
        if place in places[:number]:
            raise InputError(f"the source {source.place} is named twice; name each source once")
        if place == os.path.realpath(target.where):
            raise InputError(f"{source.place} is one of the sources and also the target; name it once")


def _names(sources: Sequence[Listing]) -> list[str]:
    """The names of the sources; if some have the same, the ends of their paths, as long as is needed."""
    names = [source.name for source in sources]
    return names if len(set(names)) == len(names) else folder_names([source.where for source in sources])


def _known(name: str, spellings: Sequence[str]) -> str:
    """The spelling of a class in earlier sources, its own if none has it."""
    found = same_name(name, spellings)
    return found[0] if len(found) == 1 else name


def _report_missing(part: Listing, classes: Sequence[str]) -> None:
    missing = sorted(set(classes) - set(part.classes), key=class_order)
    if missing:
        found = f"has no images of {len(missing)} of the {len(classes)} classes of the sources"
        warnings.warn(f"the source {part.place} {found}: {joined_names(missing)}", UserWarning, stacklevel=4)
