"""What every format of shards gives: images with the names of their classes, and which fields these come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tcm.data.domains import joined_names
from tcm.data.imports.shards import Shard
from tcm.errors import InputError

# Usual names of fields, the likeliest first.
IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp", "picture", "bytes", "content")
LABEL_NAMES = ("label", "labels", "cls", "class", "class_name", "label_name", "category", "target")


@dataclass(frozen=True)
class Wanted:
    """What the user asks for; None: it is found."""

    image: str | None = None
    label: str | None = None
    domain: str | None = None
    unlabelled: bool = False


class ChosenFields(NamedTuple):
    """The fields that are read."""

    image: str | None  # None: the only image file of each sample
    label: str | None  # None: images without labels
    domain: str | None  # None: all images are of one domain


class ShardRecord(NamedTuple):
    """One image of a shard."""

    key: str  # which image of the shard it is
    content: bytes | None  # None if it has a problem
    label: str | None  # the name of its class
    domain: str | None
    problem: str = ""


class Fields(NamedTuple):
    """The fields of a shard."""

    every: list[str]
    images: list[str]  # those that may be images
    labels: list[str]  # those that may be labels, the likeliest first


def chosen_fields(wanted: Wanted, found: Fields, shard: Shard) -> ChosenFields:
    """The fields that are read: what the user names, otherwise what the shard makes clear."""
    there = f"{shard.shown} has {joined_names(found.every, limit=20) or 'no fields'}"
    for name in ("image", "label", "domain"):
        field = getattr(wanted, name)
        if field is not None and field not in found.every:
            raise InputError(name, f"is {field}, but {there}; name one of these")
    if wanted.unlabelled and wanted.label:
        raise InputError("unlabelled", "is given and so is `label`; leave one of them out")
    image = wanted.image or likeliest(found.images, IMAGE_NAMES)
    if image is None:
        many = "several fields that may be the image" if found.images else "no field that is an image"
        raise InputError(f"{there}: {many}; name it with `image`")
    label = wanted.label or likeliest(found.labels, LABEL_NAMES)
    if label is None and not wanted.unlabelled:
        many = "several fields that may be the label" if found.labels else "no field that is a label"
        raise InputError(f"{there}: {many}; name it with `label`, or set `unlabelled=True`")
    return ChosenFields(image, None if wanted.unlabelled else label, wanted.domain)


def likeliest(candidates: Sequence[str], usual: Sequence[str]) -> str | None:
    """The only candidate, or the one with the most usual name; None if that is not clear."""
    if len(candidates) == 1:
        return candidates[0]
    return next((name for name in usual if name in candidates), None)
