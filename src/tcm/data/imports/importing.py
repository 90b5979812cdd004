"""Shards to a folder of images: one after the other, with a few images in memory at a time."""

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from tcm.data.images import MAX_PIXELS, BadImage
from tcm.data.imports import archives, tables
from tcm.data.imports.folder import ImportFolder
from tcm.data.imports.names import safe_name
from tcm.data.imports.records import ChosenFields, ShardRecord, Wanted, chosen_fields
from tcm.data.imports.shards import Shard, find_shards
from tcm.errors import InputError, printable
from tcm.progress import ProgressDisplay

MEGABYTE = 1_000_000
ENDINGS = {"JPEG": ".jpg", "MPO": ".jpg", "PNG": ".png", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif", "TIFF": ".tif"}


class Imported(NamedTuple):
    """A finished import."""

    images: dict[str, int]  # by the folder below `out`
    left_out: int
    first_left_out: list[list[str]]  # shard, key, reason


def import_shards(
    sources: Sequence[Path],
    out: Path,
    wanted: Wanted = Wanted(),
    split: str | None = None,
    quiet: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Imported:
    """Writes the images of shards into `out`, or continues an import that was stopped there.

    `say` gets a sentence about what is read.
    """
    shards = find_shards([source.expanduser() for source in sources], split)
    reader = archives if shards[0].kind == "tar" else tables
    fields = reader.fields(shards[0])
    chosen = chosen_fields(wanted, fields, shards[0])
    say(_described(chosen, shards))
    if shards[0].kind == "tar" and wanted.image is None and len(fields.images) == 1:
        chosen = chosen._replace(image=None)  # some samples may have a png where the first has a jpg
    settings = {**asdict(wanted), **chosen._asdict()}
    with ImportFolder(out, settings, shards).opened() as folder:
        left = [shard for shard in shards if not folder.is_done(shard)]
        before, total = (sum(shard.path.stat().st_size for shard in some) for some in (set(shards) - set(left), shards))
        count, title = 0, f"importing into {printable(out.name)}"
        with ProgressDisplay(
            title, total // MEGABYTE, unit="megabyte", done=before // MEGABYTE, quiet=quiet
        ) as display:
            for shard in left:
                for done, record in reader.records(shard, chosen):
                    _take(folder, shard, record, chosen)
                    count += 1
                    display.update((before + done) // MEGABYTE, f"{count} images")
                folder.finish(shard)
                before += shard.path.stat().st_size
        progress = folder.progress
    found = Imported(progress.images, progress.left_out, progress.first_left_out)
    if not found.images:
        raise InputError(f"no image could be imported: {left_out_line(found)}")
    return found


def left_out_line(found: Imported) -> str:
    """How many images are left out, and the first of them."""
    if not found.left_out:
        return "the shards are empty"
    shard, key, reason = map(printable, found.first_left_out[0])
    return f"{found.left_out} left out, the first is {key} of {shard}: {reason}"


def _described(chosen: ChosenFields, shards: Sequence[Shard]) -> str:
    label = f"the label is {printable(chosen.label)}" if chosen.label else "labels are not read"
    domain = f", the domain is {printable(chosen.domain)}" if chosen.domain else ""
    count = f"{len(shards)} shard{'s' if len(shards) > 1 else ''}"
    return f"{count}: the image is {printable(chosen.image)}, {label}{domain}."


def _take(folder: ImportFolder, shard: Shard, record: ShardRecord, chosen: ChosenFields) -> None:
    """Writes the image of a record, or notes why it is left out."""
    problem, ending = record.problem, ""
    for name in ("label", "domain"):
        if not problem and getattr(chosen, name) is not None and getattr(record, name) is None:
            problem = f"it has no {name}"
    if not problem:
        assert record.content is not None
        try:
            ending = _ending(record.content)
        except BadImage as error:
            problem = str(error)
    if problem:
        folder.leave_out(shard, record.key, problem)
        return
    assert record.content is not None
    place = "/".join(safe_name(name) for name in (record.domain, record.label) if name is not None)
    folder.add(place, f"{shard.name}@{safe_name(record.key)}{ending}", record.content)


def _ending(content: bytes) -> str:
    """The ending of a file with that content, from its header: whole images are decoded when they are packed."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise BadImage(f"the header claims {image.width} x {image.height} pixels")
            found = image.format or ""
    except BadImage:
        raise
    except UnidentifiedImageError as error:
        raise BadImage("not an image of a known format") from error
    except Exception as error:  # Pillow raises nearly anything on damaged bytes
        raise BadImage(printable(error) or type(error).__name__) from error
    if found not in ENDINGS:
        raise BadImage(f"images of the format {found} are not read; convert it")
    return ENDINGS[found]
