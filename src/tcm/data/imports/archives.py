"""WebDataset shards: tar archives in which the files of one sample have the same key, such as 0001.jpg and 0001.cls."""

import json
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tcm.data.images import EXTENSIONS
from tcm.data.imports.records import LABEL_NAMES, ChosenFields, Fields, ShardRecord
from tcm.data.imports.shards import Shard
from tcm.errors import InputError, printable

# The key ends at the first dot of the file's name: a/b.seg.png has the key a/b and the ending seg.png.
SAMPLE_FILE = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
TEXTS = ("cls", "json", "txt")
TextFields = dict[str, str]


def fields(shard: Shard) -> Fields:
    """The endings of the files of the first sample, and json.NAME for what its JSON file has."""
    _, _, files, _ = next(_samples(shard), (0, "", {}, 0))
    if not files:
        raise InputError(f"{shard.shown} has no samples; files such as 0001.jpg and 0001.cls are expected")
    images = [ending for ending in files if _is_image(ending)]
    texts = _texts(files)
    usual = [name for name in ("cls", *(f"json.{name}" for name in LABEL_NAMES), "txt") if name in texts]
    every = [*(ending for ending in files if ending != "json"), *(name for name in texts if name.startswith("json."))]
    return Fields(every, images, usual[:1])


def records(shard: Shard, chosen: ChosenFields) -> Iterator[tuple[int, ShardRecord]]:
    """The images of a shard in their order, each with the bytes of the shard that are read by then."""
    seen: set[str] = set()
    for done, key, files, twice in _samples(shard):
        images = [name for name in files if name == chosen.image or (chosen.image is None and _is_image(name))]
        texts = _texts(files)
        label, domain = (None if name is None else texts.get(name) for name in (chosen.label, chosen.domain))
        content = files[images[0]] if len(images) == 1 else None
        problem = _problem(chosen, files, images, bool(content), twice=twice or key in seen)
        seen.add(key)
        yield done, ShardRecord(key, None if problem else content, label, domain, problem)


def _problem(chosen: ChosenFields, files: dict[str, bytes], images: list[str], filled: bool, twice: bool) -> str:
    if twice:
        return "its key is in the shard twice"
    if len(images) > 1:
        return f"it has several images: {', '.join(map(printable, images))}"
    if not images:
        return f"it has no {chosen.image or 'image'}, only {', '.join(map(printable, files))}"
    return "" if filled else "the file is empty (0 bytes)"


def _samples(shard: Shard) -> Iterator[tuple[int, str, dict[str, bytes], bool]]:
    """Every sample: the bytes of the shard that are read, its key, its files by their ending, and whether one of these
    is there twice."""
    key, files, twice, done = "", dict[str, bytes](), False, 0
    with _readable(shard), shard.path.open("rb") as source, tarfile.open(fileobj=source, mode="r|*") as archive:
        for member in archive:
            archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue] # it would grow with every file
            found = SAMPLE_FILE.fullmatch(member.name.removeprefix("./"))
            if not member.isfile() or not found:
                continue
            if found[1] != key:
                if files:
                    yield done, key, files, twice
                key, files, twice = found[1], {}, False
            ending, done = found[2].lower(), source.tell()
            twice = twice or ending in files
            if _is_image(ending) or ending in TEXTS:
                content = archive.extractfile(member)
                assert content is not None
                files[ending] = content.read()
        if files:
            yield done, key, files, twice


@contextmanager
def _readable(shard: Shard) -> Iterator[None]:
    """Turns the errors of a damaged archive into an InputError."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise InputError(f"{shard.shown} cannot be read: {printable(error)}; download it again") from error


def _is_image(ending: str) -> bool:
    return f".{ending.rpartition('.')[2]}" in EXTENSIONS


def _texts(files: dict[str, bytes]) -> TextFields:
    """The texts and numbers of a sample by the name of their field: cls, txt, and json.NAME."""
    found = {name: _text(files[name]) for name in ("cls", "txt") if name in files}
    try:
        content: Any = json.loads(files["json"]) if "json" in files else {}
    except ValueError:
        content = {}
    if isinstance(content, dict):
        found |= {f"json.{name}": str(value) for name, value in content.items() if isinstance(value, str | int)}
    return {name: text for name, text in found.items() if text not in ("", "-1")}


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()
