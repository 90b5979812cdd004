"""Mistakes in shards and in what is asked of them."""

import builtins
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.mistakes import Case, World, require_refusal, truncate, write
from support.shards import image, samples, table, write_parquet, write_saved, write_tar

from tcm.cli.app import main

IMPORT = "data import {here}/in --out {here}/out --quiet"


def parquet(world: World, name: str = "x.parquet") -> Path:
    rows = table([image(number) for number in range(4)], [0, 1, 2, 0])
    return write_parquet(world.here / "in" / name, rows)


def saved(world: World) -> Path:
    """An Arrow file of a folder that `datasets` has saved."""
    rows = table([image(0), image(1)], [0, 1])
    return write_saved(world.here / "in", rows) / "data-00000-of-00001.arrow"


def without(world: World, column: str) -> None:
    rows = table([image(0), image(1)], [0, 1], caption=["a", "b"]).drop_columns([column])
    write_parquet(world.here / "in" / "x.parquet", rows.replace_schema_metadata(None))


def second_is_damaged(world: World) -> None:
    parquet(world, "train-0.parquet")
    truncate(parquet(world, "train-1.parquet"))


def noted(world: World, file: str, content: object) -> None:
    """A note of `datasets` beside its Arrow files."""
    (saved(world).parent / file).write_text(json.dumps(content))


def places_outside(world: World) -> None:
    """An Arrow file whose second image has a place far behind its end."""
    content = image(0)
    places = pa.py_buffer(np.array([0, len(content), 2**30, 2 * len(content)], dtype=np.int32))
    images = pa.Array.from_buffers(pa.binary(), 3, [None, places, pa.py_buffer(2 * content)])
    write_saved(world.here / "in", pa.table({"image": images, "label": [0, 1, 0]}))


def broken_text(world: World) -> None:
    """A Parquet file with a class name that is not UTF-8."""
    places = pa.py_buffer(np.array([0, 1], dtype=np.int32))
    text = pa.Array.from_buffers(pa.string(), 1, [None, places, pa.py_buffer(b"\xff")])
    write_parquet(world.here / "in/x.parquet", pa.table({"image": [image(0)], "label": text}))


def sparse(world: World) -> None:
    """A tar with a file of 4 GB that has no content."""
    member = tarfile.TarInfo("1.jpg")
    member.type, member.size = tarfile.GNUTYPE_SPARSE, 0
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % 2**32  # its size
    header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:]))
    write_tar(world.here / "in/x.tar", [("1.cls", b"0")])
    shard = world.here / "in/x.tar"
    shard.write_bytes(header + shard.read_bytes())


def damaged_in_the_middle(world: World) -> None:
    """A tar in which the header of the second sample is overwritten."""
    shard = write_tar(world.here / "in/x.tar", samples(0, 3))
    content = bytearray(shard.read_bytes())
    content[content.index(b"0001.jpg")] ^= 255
    shard.write_bytes(content)


def cut_off(world: World) -> None:
    """A tar whose only file claims 32 TB."""
    member = tarfile.TarInfo("1.jpg")
    member.size = 2**45
    (world.here / "in").mkdir()
    (world.here / "in/x.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + image(0))


def imported(world: World) -> None:
    """An import that is finished, and then another shard in its source."""
    parquet(world)
    assert main(world.words(IMPORT)) == 0
    parquet(world, "x1.parquet")


CASES = (
    Case(
        "no such place",
        IMPORT,
        ("/in does not exist", "Hugging Face datasets has saved, Parquet files or WebDataset"),
    ),
    Case("no shard", "data import {here}/x.txt --out {here}/out", ("x.txt is not a shard",), write("x.txt", "x")),
    Case("no shards", IMPORT, ("/in has no shards", "expected"), lambda world: (world.here / "in").mkdir()),
    Case(
        "no label column",
        IMPORT,
        ("x.parquet has image, caption", "no field that is a label", "--label", "--unlabelled"),
        lambda world: without(world, "label"),
        absent="out",
    ),
    Case(
        "no image column",
        IMPORT,
        ("x.parquet has label, caption", "no field that is an image", "--image"),
        lambda world: without(world, "image"),
        absent="out",
    ),
    Case("unknown column", IMPORT + " --label clas", ("--label is clas", "has image, label"), parquet, absent="out"),
    Case("unknown domain", IMPORT + " --domain style", ("--domain is style", "has image"), parquet, absent="out"),
    Case(
        "a column of the wrong type",
        IMPORT + " --label image",
        ("the column image", "is struct<", "class names or numbers"),
        parquet,
    ),
    Case(
        "labels that are asked for and not",
        IMPORT + " --label label --unlabelled",
        ("--unlabelled is given and so is --label",),
        parquet,
    ),
    Case(
        "several image files",
        IMPORT,
        ("several fields that may be the image", "--image"),
        lambda world: write_tar(world.here / "in/x.tar", [("1.left.jpg", image(0)), ("1.right.jpg", image(1))]),
    ),
    Case(
        "several splits",
        IMPORT,
        ("several splits: test, train", "--split"),
        lambda world: [parquet(world, f"{split}-00000-of-00001.parquet") for split in ("train", "test")],
    ),
    Case(
        "unknown split",
        IMPORT + " --split dev",
        ("--split is dev", "/in has train"),
        lambda world: parquet(world, "train-0.parquet"),
    ),
    Case(
        "several formats",
        IMPORT,
        ("shards of several formats (parquet, tar)",),
        lambda world: [parquet(world, "train-0.parquet"), write_tar(world.here / "in/train-1.tar", samples(0, 1))],
    ),
    Case("a damaged Parquet file", IMPORT, ("x.parquet cannot be read",), lambda world: truncate(parquet(world))),
    Case("a later shard is damaged", IMPORT, ("train-1.parquet cannot be read",), second_is_damaged),
    Case("a damaged Arrow file", IMPORT, (".arrow cannot be read",), lambda world: truncate(saved(world))),
    Case("a missing Arrow file", IMPORT, (".arrow", "No such file"), lambda world: saved(world).unlink()),
    Case(
        "a damaged note of datasets",
        IMPORT,
        ("state.json cannot be read",),
        lambda world: saved(world).with_name("state.json").write_text("{"),
    ),
    Case(
        "no Arrow files",
        IMPORT,
        ("/in has no shards",),
        lambda world: noted(world, "state.json", {"_data_files": []}),
    ),
    Case(
        "a note of a file elsewhere",
        IMPORT,
        ("/in has a note of files that are not in it, /etc/passwd", "save the data set again"),
        lambda world: noted(world, "state.json", {"_data_files": [{"filename": "/etc/passwd"}]}),
    ),
    Case(
        "a note of a split elsewhere",
        IMPORT,
        ("/in has a note of files that are not in it, ..",),
        lambda world: noted(world, "dataset_dict.json", {"splits": [".."]}),
    ),
    Case(
        "a split without a note",
        IMPORT,
        ("/in/train/state.json", "save the data set again"),
        lambda world: noted(world, "dataset_dict.json", {"splits": ["train"]}),
    ),
    Case(
        "a later shard is a link to nothing",
        IMPORT,
        ("train-1.parquet cannot be read: No such file",),
        lambda world: [
            parquet(world, "train-0.parquet"),
            (world.here / "in/train-1.parquet").symlink_to(world.here / "gone"),
        ],
        absent="out",
    ),
    Case("an Arrow file with a place outside", IMPORT, (".arrow cannot be read", "save it again"), places_outside),
    Case("text that is not UTF-8", IMPORT, ("x.parquet cannot be read", "UTF8"), broken_text),
    Case(
        "two columns of one name",
        IMPORT,
        ("x.parquet has several columns label", "rename"),
        lambda world: write_parquet(
            world.here / "in/x.parquet",
            pa.table([pa.array([image(0)]), pa.array([0]), pa.array([1])], names=["image", "label", "label"]),
        ),
    ),
    Case("a huge sparse file", IMPORT, ("no image could be imported", "1.jpg has 4294967296 bytes"), sparse),
    Case("a tar that is damaged in the middle", IMPORT, ("x.tar cannot be read", "again"), damaged_in_the_middle),
    Case("a file that claims more than the shard has", IMPORT, ("x.tar cannot be read",), cut_off),
    Case(
        "a damaged tar",
        IMPORT,
        ("x.tar cannot be read", "download it again"),
        lambda world: truncate(write_tar(world.here / "in/x.tar", samples(0, 20))),
    ),
    Case(
        "text named tar",
        IMPORT,
        ("x.tar cannot be read",),
        lambda world: [(world.here / "in").mkdir(), write("in/x.tar", "<html>" * 200)(world)],
    ),
    Case(
        "no image can be read",
        IMPORT,
        ("no image could be imported", "2 left out, the first is 00000000 of x.parquet", "not an image"),
        lambda world: write_parquet(world.here / "in/x.parquet", table([b"x", b"y"], [0, 1])),
    ),
    Case(
        "no image has a label",
        IMPORT,
        ("no image could be imported", "it has no label"),
        lambda world: write_parquet(world.here / "in/x.parquet", table([image(0), image(1)], [-1, -1])),
    ),
    Case(
        "a folder of something else",
        "data import {here}/in --out {data} --quiet",
        ("is not empty and holds no import", "new or empty folder"),
        parquet,
    ),
    Case("other shards", IMPORT, ("holds an import of other shards", "another folder"), imported),
    Case(
        "other settings",
        "data import {here}/in/x.parquet --out {here}/out --unlabelled --quiet",
        ("holds an import of other settings",),
        imported,
    ),
    Case(
        "a file as the result",
        IMPORT,
        ("/out", "another folder"),
        lambda world: [parquet(world), write("out", "x")(world)],
    ),
    Case(
        "a damaged note",
        IMPORT,
        (".tcm-import.json is damaged", "new folder"),
        lambda world: [imported(world), (world.here / "out/.tcm-import.json").write_text("{}")],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)


def test_pyarrow_that_is_missing_is_named_with_its_extra(
    world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    parquet(world)
    usual = builtins.__import__

    def missing(name: str, *arguments: Any) -> Any:
        if name.split(".")[0] == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'")
        return usual(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert main(world.words(IMPORT)) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "pip install 'tcm[import]'" in said
    write_tar(world.here / "x.tar", samples(0, 3))
    assert main(world.words("data import {here}/x.tar --out {here}/tar")) == 0  # a tar needs no pyarrow


def test_images_that_are_left_out_are_told_and_the_exit_code_is_1(world: World, capfd: pytest.CaptureFixture[str]):
    write_parquet(world.here / "in/x.parquet", table([image(0), image(1), b"x"], [0, 1, 0]))
    for _ in range(2):  # a finished import says the same
        assert main(world.words(IMPORT)) == 1
        said = capfd.readouterr()
        assert said.out.splitlines() == [
            f"{world.here}/out: 2 images of 2 classes",
            "1 left out, the first is 00000002 of x.parquet: not an image of a known format",
        ]
        assert said.err == ""
    assert json.loads((world.here / "out/.tcm-import.json").read_text())["left_out"] == 1
