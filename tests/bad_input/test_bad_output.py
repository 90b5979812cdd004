"""Mistakes in where to write, and folders that are in use or closed."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.mistakes import TRAIN, Case, World, contents, draw, refusal, require_refusal, write

from tcm.cli.app import main
from tcm.training.files import lock

NOBODY = 65534

CASES = (
    Case(
        "output is a file", TRAIN, ("--out", "/out cannot be made", "choose another folder"), write("out", "precious")
    ),
    Case(
        "output below a file",
        "train erm {folders} {small} --out {here}/file/out",
        ("--out", "/file/out", "choose another folder"),
        write("file", "precious"),
    ),
    Case(
        "output holds other files",
        TRAIN,
        ("--out", "/out is not empty", "choose a new or empty folder"),
        lambda world: draw(world.here / "out" / "holiday.jpg"),
    ),
    Case(
        "output holds another run",
        TRAIN + " --seed 1",
        ("--out", "seed: 0 -> 1", "choose another folder"),
        lambda world: world.copy("out"),
    ),
    Case(
        "output holds a run of another method",
        "train dann {folders} {small} --out {here}/out",
        ("--out", 'method_name: "erm" -> "dann"', "choose another folder"),
        lambda world: world.copy("out"),
    ),
    Case("cache is a file", TRAIN + " --data.cache {here}/x", ("/x", "--data.cache"), write("x", "precious")),
    Case("csv in a missing folder", "predict {run} {data}/Art --csv {here}/no/x.csv", ("--csv", "/no/x.csv", "choose")),
    Case("csv is a folder", "predict {run} {data}/Art --csv {here}", ("--csv", "is a folder", "choose another file")),
    Case("report onto a file", "report {run} --out {here}/x", ("/x cannot be made", "choose"), write("x", "precious")),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)


def test_two_processes_in_one_folder(world: World, capfd: pytest.CaptureFixture[str]):
    run = world.copy("out")
    before = contents(run)
    with lock(run):
        said = refusal(capfd, world.words(TRAIN))
    for part in ("--out", "/out is in use", "wait for it or choose another"):
        assert part in said
    assert contents(run) == before


def test_after_a_mistake_the_corrected_command_may_use_the_folder(world: World, capfd: pytest.CaptureFixture[str]):
    refusal(capfd, world.words(f"{TRAIN} --batch 13"))
    refusal(capfd, world.words(TRAIN.replace("{folders}", "--data.source-dir {data}/Art")))
    assert main(world.words(f"{TRAIN} --quiet")) == 0


@pytest.fixture
def nobody(shared: World) -> Iterator[World]:
    """A world in which the process is a user without privileges: to root, no file is unreadable."""
    here = Path(tempfile.mkdtemp(prefix="tcm-nobody-"))  # pytest's own folders are closed to other users
    try:
        shutil.copytree(shared.data, here / "data")
        shutil.copytree(shared.run, here / "run")
        (here / "mine").mkdir()
        here.chmod(0o755)
        (here / "mine").chmod(0o777)
        world = World(here / "data", here / "run", here / "mine" / "cache", here / "mine", shared.mechanisms)
        if os.getuid() != 0:
            yield world
            return
        os.setresuid(NOBODY, NOBODY, 0)
        try:
            yield world
        finally:
            os.setresuid(0, 0, 0)
    finally:
        for path in (here, *here.rglob("*")):
            path.chmod(0o777)
        shutil.rmtree(here)


def as_owner(change: Callable[[], object]) -> None:
    """Does what only the owner of the files may do."""
    real, effective, saved = os.getresuid()
    if saved == 0:
        os.setresuid(0, 0, 0)
    change()
    os.setresuid(real, effective, saved)


def test_an_image_that_may_not_be_read(nobody: World, capfd: pytest.CaptureFixture[str]):
    as_owner(lambda: (nobody.data / "Art" / "cup" / "0.jpg").chmod(0))
    said = refusal(capfd, nobody.words(TRAIN))
    for part in ("Art/cup/0.jpg", "Permission denied", "--data.on-bad-image skip"):
        assert part in said


@pytest.mark.parametrize(
    ("closed", "command", "says"),
    [
        ("data/Art", TRAIN, ("data/Art", "Permission denied", "permissions")),
        ("mine", TRAIN, ("--out", "mine/out", "Permission denied", "choose another folder")),
        ("run", "train erm {folders} {small} --out {run}", ("/run cannot be read", "Permission denied", "permissions")),
        ("run", "predict {run} {data}", ("/run cannot be read", "Permission denied", "permissions")),
        ("mine", "predict {run} {data} --csv {here}/x.csv", ("--csv", "mine/x.csv", "choose another file")),
    ],
)
def test_a_folder_that_is_closed(
    nobody: World, capfd: pytest.CaptureFixture[str], closed: str, command: str, says: tuple[str, ...]
):
    as_owner(lambda: (nobody.data.parent / closed).chmod(0o700 if os.geteuid() == 0 else 0))
    said = refusal(capfd, nobody.words(command))
    for part in says:
        assert part in said
