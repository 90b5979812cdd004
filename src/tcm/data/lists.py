"""List files with one line `relative/path label` per image, to domains. No image is opened here."""

import os
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tcm.data.domains import Domain, Listing, TargetLabels, match_classes
from tcm.data.images import is_image
from tcm.data.sources import each, pooled
from tcm.errors import InputError, printable


class ListEntry(NamedTuple):
    """One line of a list file."""

    number: int
    path: str
    label: str | None


def read_lists(
    source_list: Path | tuple[Path, ...],
    target_list: Path,
    root: Path | None = None,
    target_labels: TargetLabels = "auto",
) -> tuple[Domain, Domain]:
    """Two domains from list files whose paths are relative to the root, else to the list file's own folder.

    Several source lists are pooled.
    """
    files = each(source_list)
    sources = [_lines(file, root) for file in files]
    target = _lines(target_list, root)
    if target_labels == "ignore":
        target = [line._replace(label=None) for line in target]
    for file, lines in zip(files, sources, strict=True):
        for line in lines:
            if line.label is None:
                raise InputError(f"{_place(file, line)} has no label; a source line is `relative/path label`")
    if all(_is_integer(line.label) for lines in sources for line in lines):
        sources = [[_normal(line) for line in lines] for lines in sources]
        target = [_normal(line) for line in target]
        # Integer labels are 0, 1, ... without a gap.
        count = len({line.label for lines in sources for line in lines})
        for file, lines in zip(files, sources, strict=True):
            _require_range(file, lines, count)
        _require_range(target_list, [line for line in target if _is_integer(line.label)], count)
    last = _listing(target_list, root, target)
    listings = [_listing(file, root, lines) for file, lines in zip(files, sources, strict=True)]
    return match_classes(pooled(listings, last), last)


def read_list(list_file: Path, root: Path | None = None) -> Listing:
    """One list file on its own, with the labels that it has, numbers without leading zeros."""
    return _listing(list_file, root, [_normal(line) for line in _lines(list_file, root)])


def first_path(list_file: Path) -> str:
    """The path of the first image in the list."""
    text = _texts(list_file)[0][1]
    return text if is_image(text) else text.rsplit(maxsplit=1)[0]


def domain_name(list_file: Path) -> str:
    """The domain that a list is named after: c for cList.txt, amazon for amazon_list.txt, image_list.txt's folder."""
    # VisDA-2017 has an image_list.txt in the folder of each domain.
    if list_file.stem == "image_list":
        return list_file.absolute().parent.name
    return re.sub("[_-]?list$", "", list_file.stem, flags=re.I) or list_file.stem


def _lines(list_file: Path, root: Path | None) -> list[ListEntry]:
    """The lines with their labels, or all without labels where every line is a bare path."""
    texts = _texts(list_file)
    folder = root or list_file.parent
    bare = all(is_image(text) or (folder / text).is_file() for _, text in texts)
    lines = [ListEntry(number, text, None) if bare else _labelled(list_file, number, text) for number, text in texts]
    start = str(folder)
    for line in lines:
        if not os.path.isfile(os.path.join(start, line.path)):
            remedy = "correct the line, or set `data.root` to the folder that paths are relative to"
            raise InputError(f"{_place(list_file, line)}: there is no file {printable(folder / line.path)}; {remedy}")
    return lines


def _texts(list_file: Path) -> list[tuple[int, str]]:
    try:
        content = list_file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the list {printable(list_file)}: {error.strerror}; check its name") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the list {printable(list_file)} is not UTF-8 text; save it as UTF-8") from error
    # Not splitlines: it would also split at rarer characters that a file's name may hold.
    numbered = [(number, line.strip()) for number, line in enumerate(content.split("\n"), 1)]
    texts = [(number, text) for number, text in numbered if text and not text.startswith("#")]
    if not texts:
        raise InputError(f"the list {printable(list_file)} names no images; write one `relative/path label` per line")
    return texts


def _labelled(list_file: Path, number: int, text: str) -> ListEntry:
    path, *label = text.rsplit(maxsplit=1)
    if not label or is_image(text):
        raise InputError(
            f"{printable(list_file)}, line {number} has no label, but other lines have one; add it: {printable(text)}"
        )
    return ListEntry(number, path, label[0])


def _listing(list_file: Path, root: Path | None, lines: list[ListEntry]) -> Listing:
    entries = tuple((_normal_path(line.path), line.label) for line in lines)
    return Listing(domain_name(list_file), list_file.absolute(), (root or list_file.parent).absolute(), entries)


def _normal_path(path: str) -> str:
    return PurePosixPath(path).as_posix() if "./" in path or "//" in path else path


def _require_range(list_file: Path, lines: list[ListEntry], count: int) -> None:
    for line in lines:
        if not 0 <= int(line.label or 0) < count:
            found = f"label {line.label} is out of range"
            remedy = f"the source has {count} different labels; number them 0 to {count - 1}"
            raise InputError(f"{_place(list_file, line)}: {found}; {remedy}")


def _is_integer(label: str | None) -> bool:
    return label is not None and re.fullmatch(r"-?[0-9]+", label) is not None


def _normal(line: ListEntry) -> ListEntry:
    if line.label is None or not _is_integer(line.label) or str(int(line.label)) == line.label:
        return line
    return line._replace(label=str(int(line.label)))


def _place(list_file: Path, line: ListEntry) -> str:
    return f"{printable(list_file)}, line {line.number}"
