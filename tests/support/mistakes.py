"""A tiny world in which mistakes are made, and a mistake as a case: its command and what its one line says."""

import dataclasses
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tcm.cli.app import main

ODD = "a b ü\n☃"  # a space, letters beyond ASCII and a newline
ODD_SHOWN = r"a b ü\n☃"
TRAIN = "train erm {folders} {small} --out {here}/out"
OWN = "train erm --data.source-dir {here}/Art --data.target-dir {data}/Clipart {small} --out {here}/out"
MECHANISMS = (
    "mechanisms --data.size 32 --data.crop 32 --steps 2 --batch 4 --device cpu --data.cache {cache} --k 2 "
    "--bank.generator.width 2 --bank.critic.width 2 --bank.critic.halvings 2 --out {here}/out "
)
OWN_MECHANISMS = MECHANISMS + "--data.source-dir {here}/Art --data.target-dir {data}/Clipart"


def draw(file: Path, seed: int = 0, side: int = 40) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, format="PNG" if file.suffix == ".png" else "JPEG")
    return file


def draw_domain(
    folder: Path, classes: tuple[str, ...] = ("cup", "hat", "key"), each: int = 4, first_seed: int = 0, side: int = 40
) -> Path:
    for index, name in enumerate(classes):
        for number in range(each):
            draw(folder / name / f"{number}.jpg", seed=first_seed + 100 * index + number, side=side)
    return folder


@dataclass(frozen=True)
class World:
    """A tiny task on disk, a finished run on it, and a place of one's own."""

    data: Path  # Art and Clipart
    run: Path  # a finished run of erm
    cache: Path
    here: Path  # for what a case makes
    mechanisms: Path  # a finished and transported run of stage 1

    def words(self, text: str) -> list[str]:
        """The words of a command; the names in braces are places, and {folders}, {small} are the usual options."""
        folders = "--data.source-dir {data}/Art --data.target-dir {data}/Clipart"
        small = (
            "--backbone.name small --data.size 32 --data.crop 32 --steps 2 --batch 4 --device cpu --data.cache {cache}"
        )
        text = text.replace("{folders}", folders).replace("{small}", small)
        # Split first: a place may have spaces in its name.
        return [word.format(**dataclasses.asdict(self), odd=ODD) for word in text.split()]

    def copy(self, name: str = "run") -> Path:
        return Path(shutil.copytree(self.run, self.here / name))

    def own(self, name: str = "Art") -> Path:
        return Path(shutil.copytree(self.data / name, self.here / name))


def contents(*folders: Path) -> dict[Path, bytes]:
    """All files but environment.json and the fencing number, which are of the latest try."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {file: file.read_bytes() for file in files if file.name not in ("environment.json", ".fence.lock")}


def refusal(capfd: pytest.CaptureFixture[str], words: list[str]) -> str:
    """The one line with which the command refuses."""
    capfd.readouterr()
    code = main(words)
    said = capfd.readouterr().err
    assert code == 2, said
    assert "Traceback" not in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert said.endswith("\n")
    return said


Prepare = Callable[[World], object]


@dataclass(frozen=True)
class Case:
    """A mistake: how it comes about, the command, and what its one line must say."""

    name: str
    command: str
    says: tuple[str, ...]
    prepare: Prepare = lambda world: None
    absent: str = ""  # what must not be in `here` afterwards

    def __str__(self) -> str:
        return self.name


def require_refusal(case: Case, world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """The mistake is refused in the words of the case, and every file is as it was."""
    case.prepare(world)
    before = contents(world.here, world.data, world.run, world.mechanisms)
    said = refusal(capfd, world.words(case.command))
    for part in case.says:
        assert part.replace("{here}", str(world.here)) in said
    after = contents(world.here, world.data, world.run, world.mechanisms)
    assert {file: after.get(file) for file in before} == before
    assert not case.absent or not (world.here / case.absent).exists()


def own_source(spoil: Callable[[Path], object]) -> Prepare:
    """The source as a copy in `here`, with something done to it."""
    return lambda world: spoil(world.own())


def write(name: str, content: str | bytes) -> Prepare:
    data = content.encode() if isinstance(content, str) else content
    return lambda world: (world.here / name).write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def bomb(file: Path, side: int) -> None:
    """Writes a PNG whose header claims side x side pixels."""
    file.write_bytes(bomb_content(side))


def bomb_content(side: int) -> bytes:
    """A PNG whose header claims side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * (3 * side + 1) * 200)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
