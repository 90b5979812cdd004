"""How the usual benchmarks are laid out on disk: from benchmark, root folder and task to a `DataConfig`."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from tcm.data.benchmarks import Benchmark, PublishedDomain, Transfer, benchmark_named, find_benchmark
from tcm.data.domains import Domain, Listing, joined_names, same_name
from tcm.data.folders import class_folders, existing_folder, read_folder
from tcm.data.lists import domain_name, first_path, read_list
from tcm.data.task import DataConfig
from tcm.errors import InputError, printable

LIST_FOLDERS = ("", "image_list", "list")  # folders below the root that may have list files


class TaskData(NamedTuple):
    """The data of a task, found in one of the layouts."""

    config: DataConfig
    source: Listing
    target: Listing
    folders: tuple[str, ...] = ()  # the names of all class folders, also of those without images


class DomainLists(NamedTuple):
    """Domains in list files."""

    start: Path | None  # the folder that paths are relative to, None: the folder of each list
    listings: list[Listing]


def benchmark_data(benchmark: str, root: Path, task: str) -> DataConfig:
    """The data of a benchmark's task, in any of the usual layouts; a warning names what is not as published.

    Class folders are preferred to list files if both domains have the same ones.
    """
    published = benchmark_named(benchmark)
    transfer = published.task(task)
    root = existing_folder(root.expanduser())
    found = _in_folders(root, transfer) or _in_lists(root, transfer)
    if not found:
        _raise_not_found(published, root, transfer)
    sides = {transfer.source.name: found.source, transfer.target.name: found.target}
    images = {name: len(listing.entries) for name, listing in sides.items()}
    classes = {name: listing.class_counts for name, listing in sides.items()}
    for difference in published.differences(images, classes, found.folders):
        warnings.warn(f"{printable(root)}: {difference}", UserWarning, stacklevel=2)
    return found.config


def listed_domains(root: Path) -> list[Domain]:
    """All domains of the benchmark that the root is named after, from its list files; empty if there are none."""
    published = find_benchmark(root.name)
    found = _by_lists(root, published.domains) if published else None
    return [listing.domain(listing.classes) for listing in found.listings] if found else []


def _in_folders(root: Path, transfer: Transfer) -> TaskData | None:
    """The task in <root>/<domain>/<class>/<image>, None if the two domains do not have the same class folders."""
    folders = [_domain_folder(root, domain) for domain in (transfer.source, transfer.target)]
    if not all(folders):
        return None
    source, target = (read_folder(folder) for folder in folders if folder)
    # ImageCLEF-DA has folders with the class names of Caltech-256 in c, and none in i and p.
    loose = any(name is None for listing in (source, target) for _, name in listing.entries)
    few, many = sorted((source.classes, target.classes), key=len)
    if loose or not all(same_name(name, many) for name in few):
        return None
    config = DataConfig(root=root, source=source.where.name, target=target.where.name)
    return TaskData(config, source, target, (*class_folders(source.where), *class_folders(target.where)))


def _in_lists(root: Path, transfer: Transfer) -> TaskData | None:
    """The task in two list files, None if there are none. Their paths are relative to the root or to their folder."""
    found = _by_lists(root, (transfer.source, transfer.target))
    if not found:
        return None
    source, target = found.listings
    return TaskData(DataConfig(root=found.start, source_list=source.where, target_list=target.where), source, target)


def _by_lists(root: Path, domains: Sequence[PublishedDomain]) -> DomainLists | None:
    files = [file for domain in domains if (file := _list_file(root, domain))]
    if len(files) < len(domains):
        return None
    firsts = [first_path(file) for file in files]
    if all((root / path).is_file() for path in firsts):
        start = root
    elif all((file.parent / path).is_file() for file, path in zip(files, firsts, strict=True)):
        start = None
    else:
        names, paths = (" and ".join(map(printable, several)) for several in (files, firsts))
        raise InputError(
            f"the lists {names} start with {paths}, but these are not files below {printable(root)}; "
            "write the paths in the lists relative to that folder"
        )
    return DomainLists(start, [read_list(file, start) for file in files])


def _domain_folder(root: Path, domain: PublishedDomain) -> Path | None:
    found = [folder for folder in _subfolders(root) if domain.is_called(folder.name)]
    if len(found) > 1:
        names = joined_names([folder.name for folder in found])
        raise InputError(
            f"{printable(root)} has several folders for {domain.name}: {names}; move all but one elsewhere"
        )
    return found[0] if found else None


def _list_file(root: Path, domain: PublishedDomain) -> Path | None:
    """image_list.txt in the domain's folder, else a file such as Art.txt, amazon_list.txt or cList.txt."""
    folder = _domain_folder(root, domain)
    if folder and (folder / "image_list.txt").is_file():
        return folder / "image_list.txt"
    files = (file for place in LIST_FOLDERS for file in sorted((root / place).glob("*.txt")))
    return next((file for file in files if domain.is_called(domain_name(file))), None)


def _subfolders(root: Path) -> list[Path]:
    try:
        return sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError:  # a folder beside the root, which need not be readable; the root is
        return []


def _raise_not_found(published: Benchmark, root: Path, transfer: Transfer) -> NoReturn:
    domains = (transfer.source, transfer.target)
    folders = [_domain_folder(root, domain) for domain in domains]
    if all(folders):
        source, target = (read_folder(folder) for folder in folders if folder)
        raise InputError(
            f"the folders {printable(source.name)} and {printable(target.name)} of {printable(root)} do not have the "
            f"same classes ({_class_mismatch(source, target)}), and there are no list files; {published.name} needs "
            f"<domain>/<class>/<image> with the same class names, or lists such as {_usual_list(transfer.source)} and "
            f"{_usual_list(transfer.target)}"
        )
    absent = [domain for domain, folder in zip(domains, folders, strict=True) if not folder]
    looked = " and ".join(f"a folder {domain.name} or a list {_usual_list(domain)}" for domain in absent)
    around = (*_subfolders(root), *([root.parent] if published.domain(root.name) else []))
    fitting = [folder for folder in around if all(_domain_folder(folder, domain) for domain in domains)]
    # The one with most domains: benchmarks share short names, such as c and p in ImageCLEF-DA and Office-Home.
    near = max(
        fitting, key=lambda folder: sum(bool(_domain_folder(folder, one)) for one in published.domains), default=None
    )
    remedy = f"{printable(near)} has them, give that" if near else "put them there, or give the folder that holds them"
    content = joined_names([entry.name for entry in sorted(root.iterdir())]) or "nothing"
    raise InputError(
        f"{printable(root)} lacks domains of {published.name}: looked for {looked}, found {content}; {remedy}"
    )


def _class_mismatch(source: Listing, target: Listing) -> str:
    """In what the class folders of two domains differ."""
    for listing in (source, target):
        if loose := [path for path, name in listing.entries if name is None]:
            return f"{printable(listing.name)}/{printable(loose[0])} is in no class folder"
    alone = [
        f"only {printable(listing.name)} has {joined_names(own)}"
        for listing, other in ((source, target), (target, source))
        if (own := [name for name in listing.classes if not same_name(name, other.classes)])
    ]
    return " and ".join(alone)


def _usual_list(domain: PublishedDomain) -> str:
    return f"list/{domain.name}List.txt" if len(domain.name) == 1 else f"image_list/{domain.name.replace(' ', '_')}.txt"
