"""Files and folders that a user names, to shards in a fixed order."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from tcm.data.domains import joined_names
from tcm.data.folders import files_below
from tcm.data.imports.names import safe_name
from tcm.errors import InputError, printable

T = TypeVar("T")
Kind = Literal["parquet", "arrow", "tar"]
SUFFIXES: dict[str, Kind] = {".parquet": "parquet", ".arrow": "arrow", ".tar": "tar", ".tar.gz": "tar", ".tgz": "tar"}
# The numbers of a shard: train-00000-of-00010, train-00000-of-00010-0123456789abcdef, train_003, 0003.
NUMBERS = re.compile(r"([-_.]?\d+-of-\d+(-[0-9a-f]{16})?|[-_.]?\d+)$")
EXPECTED = "a folder that Hugging Face datasets has saved, Parquet files or WebDataset tar files are expected"


class Shard(NamedTuple):
    """One file of a data set."""

    path: Path
    kind: Kind
    name: str  # part of the names of its images; shards of one import have different names
    split: str  # the part of the data set that it belongs to

    @property
    def shown(self) -> str:
        """The shard as messages name it."""
        return printable(self.path)


def find_shards(sources: Sequence[Path], split: str | None) -> list[Shard]:
    """The shards of these files and folders, of one split and one format."""
    found, where = [shard for source in sources for shard in _shards_of(source)], " and ".join(map(printable, sources))
    if not found:
        raise InputError(f"{where} has no shards; {EXPECTED}")
    chosen = _of_split(found, split, where)
    kinds = {shard.kind for shard in chosen}
    if len(kinds) > 1:
        raise InputError(
            f"{printable(sources[0])} has shards of several formats ({', '.join(sorted(kinds))}); name files"
        )
    missing = [shard for shard in chosen if not shard.path.is_file()]
    if missing:
        raise InputError(f"{missing[0].shown} cannot be read: No such file; download or save it again")
    twice = [name for name, count in Counter(shard.name for shard in chosen).items() if count > 1]
    if twice:
        raise InputError(f"several shards are called {printable(twice[0])}; name the folder that holds them all")
    short = [shard.name.rpartition("/")[2] for shard in chosen]
    names = short if len(set(short)) == len(short) else [shard.name for shard in chosen]
    return [shard._replace(name=safe_name(name)) for shard, name in zip(chosen, names, strict=True)]


def _shards_of(source: Path) -> Iterator[Shard]:
    if source.is_file():
        suffix = _suffix(source.name)
        if suffix is None:
            raise InputError(f"{printable(source)} is not a shard; {EXPECTED}")
        # A file is named because it is wanted, so it has no split to choose.
        yield Shard(source, SUFFIXES[suffix], source.name[: -len(suffix)], "")
    elif not source.is_dir():
        raise InputError(f"{printable(source)} does not exist; {EXPECTED}")
    elif (splits := _noted(source / "dataset_dict.json", "splits", str)) is not None:
        for split in splits:
            yield from _saved(source / _plain(split, source), source, split)
    elif _noted(source / "state.json", "_data_files", dict) is not None:
        yield from _saved(source, source, "")
    else:
        yield from _below(source)


def _saved(folder: Path, root: Path, split: str) -> Iterator[Shard]:
    """The Arrow files of a folder that `datasets` has saved; others in it are caches."""
    entries = _noted(folder / "state.json", "_data_files", dict)
    if entries is None:
        raise InputError(f"{printable(folder / 'state.json')} does not name Arrow files; save the data set again")
    for entry in entries:
        path = folder / _plain(entry.get("filename"), folder)
        yield Shard(path, "arrow", path.relative_to(root).as_posix().removesuffix(".arrow"), split)


def _noted(file: Path, name: str, kind: type[T]) -> list[T] | None:
    """The list that `datasets` has noted in a file; None if this is not one of its notes."""
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{printable(file)} cannot be read ({printable(error)}); save the data set again") from error
    found = content.get(name) if isinstance(content, dict) else None
    return found if isinstance(found, list) and all(isinstance(item, kind) for item in found) else None


def _plain(name: object, folder: Path) -> str:
    """The name of a file or folder directly in the folder, as a note says it; an error if it is somewhere else."""
    if not isinstance(name, str) or name in ("", "..") or Path(name).name != name:
        found = f"{printable(folder)} has a note of files that are not in it, {printable(name)}"
        raise InputError(f"{found}; save the data set again")
    return name


def _below(folder: Path) -> Iterator[Shard]:
    """All shards below a folder, with the splits that their names say."""
    names = [name for name in sorted(files_below(folder)) if _suffix(name) and "/." not in f"/{name}"]
    if not names:
        raise InputError(f"{printable(folder)} has no shards; {EXPECTED}")
    for name in names:
        suffix = _suffix(name) or ""
        stem = name[: -len(suffix)]
        yield Shard(folder / name, SUFFIXES[suffix], stem, NUMBERS.sub("", stem).rstrip("/"))


def _suffix(name: str) -> str | None:
    return next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), None)


def _of_split(shards: list[Shard], split: str | None, where: str) -> list[Shard]:
    """The shards of the split, which may be named by a word of its name; all if there is only one."""
    splits = list(dict.fromkeys(shard.split for shard in shards))
    fitting = splits
    if split is not None:
        fitting = [one for one in splits if one == split] or [
            one for one in splits if split in re.split(r"[-/_.]", one)
        ]
        if not fitting:
            raise InputError(
                "split", f"is {split}, but {where} has {joined_names(splits) or 'none'}; name one of these"
            )
    if len(fitting) > 1:
        several = joined_names([one or '""' for one in fitting])
        raise InputError(f"{where} has several splits: {several}; name one with `split`")
    return [shard for shard in shards if shard.split == fitting[0]]
