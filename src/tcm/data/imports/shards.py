"""Files and folders that a user names, to shards in a fixed order."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tcm.data.domains import joined_names
from tcm.data.folders import files_below
from tcm.data.imports.names import safe_name
from tcm.errors import InputError, printable

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
    found = [shard for source in sources for shard in _shards_of(source)]
    chosen = _of_split(found, split, " and ".join(map(printable, sources)))
    kinds = {shard.kind for shard in chosen}
    if len(kinds) > 1:
        raise InputError(
            f"{printable(sources[0])} has shards of several formats ({', '.join(sorted(kinds))}); name files"
        )
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
    elif (source / "dataset_dict.json").is_file():
        for split in _json(source / "dataset_dict.json")["splits"]:
            yield from _saved(source / split, source, split)
    elif (source / "state.json").is_file():
        yield from _saved(source, source, "")
    else:
        yield from _below(source)


def _saved(folder: Path, root: Path, split: str) -> Iterator[Shard]:
    """The Arrow files of a folder that `datasets` has saved; others in it are caches."""
    for entry in _json(folder / "state.json")["_data_files"]:
        path = folder / entry["filename"]
        yield Shard(path, "arrow", path.relative_to(root).as_posix().removesuffix(".arrow"), split)


def _json(file: Path) -> dict:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{printable(file)} cannot be read ({printable(error)}); save the data set again") from error


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
        raise InputError(f"{where} has several splits: {joined_names(fitting)}; name one with `split`")
    return [shard for shard in shards if shard.split == fitting[0]]
