"""Folders of images to domains. No image is opened here."""

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from tcm.data.domains import (
    IGNORE_REMEDY,
    Domain,
    Listing,
    TargetLabels,
    joined_names,
    match_classes,
    plain_name,
    same_name,
)
from tcm.data.images import is_image
from tcm.data.sources import each, pooled
from tcm.errors import InputError, printable

LAYOUT = "one subfolder per class is expected, <folder>/<class>/<image>"


def files_below(folder: Path) -> Iterator[str]:
    """Every file below the folder as a relative POSIX path; a folder that is linked to twice is read once."""
    real = folder.resolve()
    seen = {_identity(parent) for parent in (real, *real.parents)}
    for where, subfolders, files in os.walk(folder, followlinks=True, onerror=_raise_unreadable):
        below = "" if where == str(folder) else f"{Path(where).relative_to(folder).as_posix()}/"
        yield from (below + name for name in sorted(files))
        identities = {_identity(Path(where, name)): name for name in sorted(subfolders, reverse=True)}
        subfolders[:] = sorted(name for identity, name in identities.items() if identity not in seen)
        seen |= identities.keys()


def images_below(folder: Path) -> list[str]:
    """The relative POSIX paths of all images below the folder, sorted. Hidden files are left out."""
    return sorted(filter(is_image, files_below(existing_folder(folder))))


def domain_folders(root: Path) -> list[Path]:
    """The subfolders of the root that hold images, sorted by name."""
    root = existing_folder(root)
    try:
        folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        _raise_unreadable(error)
    return [folder for folder in folders if any(map(is_image, files_below(folder)))]


def existing_folder(folder: Path) -> Path:
    """The folder's absolute path, if it is a folder; an error otherwise."""
    folder = Path(os.path.abspath(folder))
    try:
        with os.scandir(folder):
            return folder
    except NotADirectoryError:
        raise InputError(f"{printable(folder)} is a file; give the folder that holds the images") from None
    except OSError as error:
        _raise_unreadable(error)


def read_folder(folder: Path) -> Listing:
    """All images below a folder; the class of each is its first subfolder, None for those directly in the folder."""
    folder = existing_folder(folder)
    paths = images_below(folder)
    if not paths:
        found = "has files, but no images" if any(files_below(folder)) else "is empty"
        raise InputError(
            f"{printable(folder)} {found}; put images there (jpg, png, webp, bmp, gif, tif) or give another"
        )
    # Office-31 ships as amazon/images/<class>/<image>.
    depth = 1 if all(path.startswith("images/") and path.count("/") >= 2 for path in paths) else 0
    parts = (path.split("/", depth + 1) for path in paths)
    names = [part[depth] if len(part) > depth + 1 else None for part in parts]
    return Listing(folder.name, folder, folder, tuple(zip(paths, names, strict=True)))


def class_folders(folder: Path) -> list[str]:
    """The names of the class subfolders, also of those without images."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    return class_folders(folder / "images") if names == ["images"] else names


def read_domain(folder: Path) -> Domain:
    """One folder as a domain: labels are its own class subfolders, -1 for images directly in it."""
    listing = read_folder(folder)
    return listing.domain(listing.classes)


def read_plain_folders(
    source_dir: Path | tuple[Path, ...], target_dir: Path, target_labels: TargetLabels = "auto"
) -> tuple[Domain, Domain]:
    """The source from its class subfolders; the target with labels if it has class subfolders, else without.

    Several source folders are pooled.
    """
    sources, target = [read_folder(folder) for folder in each(source_dir)], read_folder(target_dir)
    if target_labels == "ignore":
        target = target.unlabelled()
    for source in sources:
        if not source.classes:
            raise InputError(f"the source {source.place} has images but no class subfolders; {LAYOUT}")
    for listing, remedy in (*((source, "") for source in sources), (target, f", or {IGNORE_REMEDY}")):
        loose = [path for path, name in listing.entries if name is None]
        if loose and listing.classes:
            found = f"{listing.place} has class subfolders and also {len(loose)} images outside them"
            raise InputError(f"{found}, the first is {printable(loose[0])}; move or remove those{remedy}")
    return match_classes(pooled(sources, target), target)


def read_benchmark_folders(
    root: Path, source: str | tuple[str, ...], target: str, target_labels: TargetLabels = "auto"
) -> tuple[Domain, Domain]:
    """A source, or several that are pooled, and a target of root/<domain>/<class>/<image>.

    Names match in any case, with or without spaces and underscores.
    """
    root = existing_folder(root)
    folders = {folder.name: folder for folder in domain_folders(root)}
    if not folders:
        raise InputError(f"{printable(root)} has no domain with images; <root>/<domain>/<class>/<image> is expected")
    sources = tuple(_named_folder(root, folders, name) for name in each(source))
    return read_plain_folders(sources, _named_folder(root, folders, target), target_labels)


def _named_folder(root: Path, folders: dict[str, Path], name: str) -> Path:
    found = same_name(name, folders)
    if len(found) == 1:
        return folders[found[0]]
    if found:
        several = f"{printable(root)}: {joined_names(found)}"
        raise InputError(f'"{printable(name)}" matches several domains of {several}; give one of these')
    near = _nearest_first(name, list(folders))
    raise InputError(f'{printable(root)} has no domain "{printable(name)}"; it has {joined_names(near)}')


def _nearest_first(name: str, options: Sequence[str]) -> list[str]:
    likeness = {o: difflib.SequenceMatcher(None, plain_name(name), plain_name(o)).ratio() for o in options}
    return sorted(options, key=lambda option: (-likeness[option], option))


def _identity(folder: Path) -> tuple[int, int]:
    try:
        status = folder.stat()
    except OSError as error:
        _raise_unreadable(error)
    return status.st_dev, status.st_ino


def _raise_unreadable(error: OSError) -> NoReturn:
    reason = error.strerror or str(error)
    raise InputError(
        f"cannot read the folder {printable(error.filename)}: {reason}; check its name and permissions"
    ) from error
