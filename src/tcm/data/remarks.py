"""What makes a task doubtful, though it can be trained: warnings when its images are loaded."""

from collections import Counter

from tcm.data.domains import joined_names
from tcm.data.store import ImageStore
from tcm.errors import printable

FEW = 4  # a class with fewer images is hard to learn; one with a single image is reported when the folders are read
FEW_PER_CLASS, FEWEST = 3, 10  # a target with fewer images for each class, or fewer in all, is tiny
TINY = 8  # pixels of the shorter side of an image that shows next to nothing


def task_remarks(source: ImageStore, target: ImageStore) -> list[str]:
    """One sentence for each thing that is doubtful about the images of a task. Target labels play no part."""
    found = [shared_images(source, target), few_of_a_class(source), tiny_target(source, target)]
    return [remark for remark in [*found, *map(tiny_images, (source, target))] if remark]


def shared_images(source: ImageStore, target: ImageStore) -> str:
    """A sentence if files of the target have the bytes of source files; empty otherwise."""
    known = dict(zip(source.hashes, source.paths, strict=True))
    there = zip(target.hashes, target.paths, strict=True)
    shared = [(known[content], path) for content, path in there if content in known]
    if not shared:
        return ""
    names = f"the source {printable(source.name)} and the target {printable(target.name)}"
    if len(shared) == len(target):
        return f"{names} are the same images; name two different domains, or the result says nothing about new images"
    one, other = map(printable, shared[0])
    return f"{names} share {len(shared)} images ({one} is {other}); remove them from one, or the result looks too good"


def few_of_a_class(source: ImageStore) -> str:
    """A sentence if classes of the source have few images; empty otherwise."""
    counts = Counter(source.labels.tolist())
    few = [name for label, name in enumerate(source.classes) if 1 < counts[label] < FEW]
    if not few:
        return ""
    found = f"has fewer than {FEW} images for {len(few)} of its {len(source.classes)} classes: {joined_names(few)}"
    return f"the source {printable(source.name)} {found}; add images of them"


def tiny_target(source: ImageStore, target: ImageStore) -> str:
    """A sentence if the target is too small to adapt to; empty otherwise."""
    classes = len(source.classes)
    if classes > len(target) or len(target) >= max(FEWEST, FEW_PER_CLASS * classes):
        return ""  # fewer images than classes are reported when the folders are read
    found = f"has {len(target)} images for {classes} classes"
    return f"the target {printable(target.name)} {found}; adaptation needs more of them, labels are not needed"


def tiny_images(store: ImageStore) -> str:
    """A sentence if images were so small that nothing can be seen in them; empty otherwise."""
    sizes = zip(store.paths, store.original_sizes, strict=True)
    tiny = [(path, size) for path, size in sizes if min(size) < TINY]
    if not tiny:
        return ""
    (path, (width, height)), count = tiny[0], len(tiny)
    first = f"{printable(path)} has {width} x {height}"
    found = f"{count} of the {len(store)} images of {printable(store.name)} have a side below {TINY} pixels"
    return f"{found} ({first}); remove them"
