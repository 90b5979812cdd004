"""WebDataset shards: tar archives in which the files of one sample have the same key, such as 0001.jpg and 0001.cls."""

import json
import re
import tarfile
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from tcm.data.images import EXTENSIONS
from tcm.data.imports.records import LABEL_NAMES, ChosenFields, Fields, ShardRecord
from tcm.data.imports.shards import Shard
from tcm.errors import InputError, printable

# The key ends at the first dot of the file's name: a/b.seg.png has the key a/b and the ending seg.png.
SAMPLE_FILE = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
TEXTS = ("cls", "json", "txt")
FIRST = 20  # samples in which fields are looked for
LARGEST = 2**30  # bytes of one file
PIECE = 2**20  # bytes that are read together
TWICE = "its key is in the shard twice"
DAMAGED = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # pyright: ignore[reportAttributeAccessIssue]
TextFields = dict[str, str]


class TarSample(NamedTuple):
    """The files with one key."""

    key: str
    files: dict[str, bytes]  # by their ending: images and texts
    problem: str = ""  # why it cannot be used
    done: int = 0  # bytes of the shard that are read by then


class TarHeader(tarfile.TarInfo):
    """What an archive says of one of its files. A damaged one is an error: tarfile itself takes it for the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "TarHeader":  # pyright: ignore[reportIncompatibleMethodOverride]
        """The next file of the archive."""
        try:
            return super().fromtarfile(archive)
        except DAMAGED as error:
            raise tarfile.ReadError(str(error)) from error


def fields(shard: Shard) -> Fields:
    """The endings of the files of a sample, and json.NAME for what its JSON file has.

    It is the first that has an image and a text, if one of the first samples is such.
    """
    first = (sample.files for sample in islice(_samples(shard), FIRST))
    files = max(first, key=lambda files: any(map(_is_image, files)) + bool(_texts(files)), default=None)
    if files is None:
        raise InputError(f"{shard.shown} has no samples; files such as 0001.jpg and 0001.cls are expected")
    images = [ending for ending in files if _is_image(ending)]
    texts = _texts(files)
    usual = [name for name in ("cls", *(f"json.{name}" for name in LABEL_NAMES), "txt") if name in texts]
    every = [*(ending for ending in files if ending != "json"), *(name for name in texts if name.startswith("json."))]
    return Fields(every, images, usual[:1])


def records(shard: Shard, chosen: ChosenFields) -> Iterator[tuple[int, ShardRecord]]:
    """The images of a shard in their order, each with the bytes of the shard that are read by then."""
    seen: set[str] = set()
    for sample in _samples(shard):
        images = [name for name in sample.files if name == chosen.image or (chosen.image is None and _is_image(name))]
        texts = _texts(sample.files)
        label, domain = (None if name is None else texts.get(name) for name in (chosen.label, chosen.domain))
        problem = TWICE if sample.key in seen else sample.problem or _problem(chosen, sample.files, images)
        seen.add(sample.key)
        content = None if problem else sample.files[images[0]]
        yield sample.done, ShardRecord(sample.key, content, label, domain, problem)


def _problem(chosen: ChosenFields, files: Mapping[str, bytes], images: list[str]) -> str:
    if len(images) > 1:
        return f"it has several images: {', '.join(map(printable, images))}"
    if not images:
        return f"it has no {chosen.image or 'image'}, only {', '.join(map(printable, files))}"
    return "" if files[images[0]] else "the file is empty (0 bytes)"


def _samples(shard: Shard) -> Iterator[TarSample]:
    sample = TarSample("", {})
    with (
        _readable(shard),
        shard.path.open("rb") as source,
        tarfile.open(fileobj=source, mode="r|*", tarinfo=TarHeader) as archive,
    ):
        for member in archive:
            archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue] # it would grow with every file
            found = SAMPLE_FILE.fullmatch(member.name.removeprefix("./"))
            if member.isdir() or not found:
                _pass_over(archive, member)
                continue
            if found[1] != sample.key:
                if sample.files:
                    yield sample
                sample = TarSample(found[1], {})
            ending = found[2].lower()
            problem = _problem_of_file(member) or (TWICE if ending in sample.files else "")
            if not (_is_image(ending) or ending in TEXTS):
                _pass_over(archive, member)
            elif problem:
                _pass_over(archive, member)
                sample.files[ending], sample = b"", sample._replace(problem=sample.problem or problem)
            else:
                sample.files[ending] = b"".join(_pieces(archive, member))
            sample = sample._replace(done=source.tell())
        if sample.files:
            yield sample


def _problem_of_file(member: tarfile.TarInfo) -> str:
    if not member.isfile():
        return f"{printable(member.name)} is not a regular file; write the shard without links"
    # Before it is read: a sparse file of a few bytes can claim any size.
    return f"{printable(member.name)} has {member.size} bytes, the limit is {LARGEST}" if member.size > LARGEST else ""


def _pass_over(archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    """Reads the rest of a file. In an archive that is cut off, tarfile itself could look for its end for days."""
    if member.isfile() and not member.issparse():
        deque(_pieces(archive, member), maxlen=0)


def _pieces(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    content = archive.extractfile(member)
    assert content is not None
    while piece := content.read(PIECE):
        yield piece


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
    except (ValueError, RecursionError):
        content = {}
    if isinstance(content, dict):
        found |= {f"json.{name}": str(value) for name, value in content.items() if isinstance(value, str | int)}
    return {name: text for name, text in found.items() if text not in ("", "-1")}


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()
