"""Small shards as Hugging Face `datasets` and WebDataset write them."""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CLASSES = ("cup", "hat", "key")


def image(seed: int, form: str = "JPEG", side: int = 24) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def table(
    images: Sequence[bytes | None], labels: Sequence[Any], names: Sequence[str] = CLASSES, **more: Any
) -> pa.Table:
    """Rows as `datasets` has them: images are structs of bytes and path, and metadata has the names of the labels."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    pictures = pa.array([{"bytes": content, "path": f"{row}.jpg"} for row, content in enumerate(images)], kind)
    features = {"image": {"_type": "Image"}, "label": {"names": list(names), "_type": "ClassLabel"}}
    features |= {name: {"dtype": "string", "_type": "Value"} for name in more}
    noted = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table({"image": pictures, "label": pa.array(labels, pa.int64()), **more}).replace_schema_metadata(noted)


def write_parquet(file: Path, rows: pa.Table) -> Path:
    """A Parquet file of one row group, in pages of a few rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, write_batch_size=4)
    return file


def write_saved(folder: Path, *shards: pa.Table) -> Path:
    """The folder of `Dataset.save_to_disk`."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{number:05d}-of-{len(shards):05d}.arrow" for number in range(len(shards))]
    for name, rows in zip(names, shards, strict=True):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, rows.schema) as out:
            out.write_table(rows, max_chunksize=3)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    return folder


def write_tar(file: Path, files: Sequence[tuple[str, bytes]], mode: str = "w") -> Path:
    """A tar archive with these files in this order."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def samples(first: int, count: int, ending: str = "jpg") -> list[tuple[str, bytes]]:
    """The files of WebDataset samples with the labels 0, 1, 2, 0, ..."""
    form = "PNG" if ending == "png" else "JPEG"
    return [
        file
        for number in range(first, first + count)
        for file in ((f"{number:04d}.{ending}", image(number, form)), (f"{number:04d}.cls", str(number % 3).encode()))
    ]


def tree(folder: Path) -> Mapping[str, bytes]:
    """The images below a folder by their path; not the note of the import."""
    files = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
