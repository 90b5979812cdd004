"""How fast `tcm data import` is, and how much memory it needs, as a Markdown table.

The same images are written once as Parquet (one row group in each file, the hardest case), as Arrow and as WebDataset
shards. Each import runs in a process of its own. The reference, just before, writes the same bytes into as many files
and does nothing else.

    python benchmarks/import_shards.py /scratch --images 1000000
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CLASSES, SHARD, SIDE = 100, 50_000, 32
CHILD = """
import re, sys, time
from pathlib import Path
import pyarrow.parquet, tcm.cli.data
from tcm.cli.app import main

def memory():
    return int(re.search("VmHWM: *\\t* *([0-9]+) kB", Path("/proc/self/status").read_text())[1]) / 1000

before, began = memory(), time.monotonic()
assert main(["data", "import", sys.argv[1], "--out", sys.argv[2], "--quiet"]) == 0
print(time.monotonic() - began, memory(), before)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder that exists; what is written into it is removed")
    parser.add_argument("--images", type=int, default=100_000)
    given = parser.parse_args()
    work = given.folder / "import-shards"
    shutil.rmtree(work, ignore_errors=True)
    print(f"{given.images} JPEG images of {SIDE} x {SIDE}, {CLASSES} classes, {SHARD} in a shard\n")
    print("| | images/s | of the reference | MB before | MB at most |")
    print("|---|---|---|---|---|")
    for name, write in (("Parquet", write_parquet), ("Arrow", write_arrow), ("WebDataset", write_tar)):
        for count in (given.images // 10, given.images):
            (work / "shards").mkdir(parents=True)
            write(work / "shards", count)
            reference = timed(lambda count=count: write_plain(work / "plain", count))
            seconds, memory, before = imported(work / "shards", work / "out")
            row = (f"{name}, {count} images", f"{count / seconds:.0f}", f"{reference / seconds:.2f}")
            print(f"| {' | '.join(row)} | {before:.0f} | {memory:.0f} |", flush=True)
            shutil.rmtree(work)


def timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def imported(shards: Path, out: Path) -> list[float]:
    """The seconds of an import, and the most memory in MB that its process has had by its end and before it."""
    done = subprocess.run([sys.executable, "-c", CHILD, shards, out], check=True, capture_output=True, text=True)
    return [float(number) for number in done.stdout.split()[-3:]]


def images(count: int) -> Iterator[tuple[int, bytes]]:
    """Numbers and the bytes of images, 1,000 of which differ."""
    rng, some = np.random.default_rng(0), []
    for _ in range(min(count, 1000)):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(file, "JPEG")
        some.append(file.getvalue())
    for number in range(count):
        yield number, some[number % len(some)]


def write_plain(folder: Path, count: int) -> None:
    for label in range(CLASSES):
        (folder / str(label)).mkdir(parents=True)
    for number, content in images(count):
        (folder / str(number % CLASSES) / f"{number:08d}.jpg").write_bytes(content)
    os.sync()  # as an import does at the end of a shard


def tables(count: int) -> Iterator[tuple[int, pa.Table]]:
    """The shards as tables."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    rows: list[tuple[int, bytes]] = []
    for number, content in images(count):
        rows.append((number, content))
        if len(rows) == SHARD or number == count - 1:
            pixels = pa.array([{"bytes": content, "path": None} for _, content in rows], kind)
            labels = pa.array([number % CLASSES for number, _ in rows])
            yield number // SHARD, pa.table({"image": pixels, "label": labels})
            rows = []


def write_parquet(folder: Path, count: int) -> None:
    for shard, table in tables(count):
        pq.write_table(table, folder / f"train-{shard:05d}.parquet", row_group_size=SHARD)


def write_arrow(folder: Path, count: int) -> None:
    for shard, table in tables(count):
        with (
            pa.OSFile(str(folder / f"train-{shard:05d}.arrow"), "wb") as file,
            pa.ipc.new_stream(file, table.schema) as out,
        ):
            out.write_table(table, max_chunksize=1000)


def write_tar(folder: Path, count: int) -> None:
    archive = None
    for number, content in images(count):
        if number % SHARD == 0:
            if archive:
                archive.close()
            archive = tarfile.open(folder / f"train-{number // SHARD:05d}.tar", "w")  # noqa: SIM115
        assert archive is not None
        for ending, data in (("jpg", content), ("cls", str(number % CLASSES).encode())):
            member = tarfile.TarInfo(f"{number:08d}.{ending}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
            archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]
    assert archive is not None
    archive.close()


if __name__ == "__main__":
    main()
