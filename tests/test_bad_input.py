"""Every mistake ends with exit code 2 and one line that names the place and the remedy, and destroys nothing."""

import csv
import dataclasses
import fcntl
import json
import os
import resource
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from averaging import register
from PIL import Image

from tcm.cli import main
from tcm.results import COLUMNS, VERSION, add_rows

NOBODY = 65534
ODD = "a b ü\n☃"  # a space, letters beyond ASCII and a newline
ODD_SHOWN = r"a b ü\n☃"


def draw(file: Path, seed: int = 0) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, format="PNG" if file.suffix == ".png" else "JPEG")
    return file


def draw_domain(
    folder: Path, classes: tuple[str, ...] = ("cup", "hat", "key"), each: int = 4, first_seed: int = 0
) -> Path:
    for index, name in enumerate(classes):
        for number in range(each):
            draw(folder / name / f"{number}.jpg", seed=first_seed + 100 * index + number)
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


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("bad-input")
    for place, name in enumerate(("Art", "Clipart")):
        draw_domain(root / "data" / name, first_seed=1000 * place)
    world = World(root / "data", root / "run", root / "cache", root, root / "mechanisms")
    assert main(world.words("train erm {folders} {small} --out {run} --quiet")) == 0
    assert main(world.words(MECHANISMS.replace("{here}/out", "{mechanisms}") + "{folders} --quiet")) == 0
    assert main(world.words("transport {mechanisms} --device cpu --quiet")) == 0
    return world


@pytest.fixture
def world(shared: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    register(monkeypatch)
    return dataclasses.replace(shared, here=tmp_path)


def contents(*folders: Path) -> dict[Path, bytes]:
    """All files but environment.json, which is of the latest try."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {file: file.read_bytes() for file in files if file.name != "environment.json"}


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


TRAIN = "train erm {folders} {small} --out {here}/out"


def own_source(spoil: Callable[[Path], object]) -> Prepare:
    """The source as a copy in `here`, with something done to it."""
    return lambda world: spoil(world.own())


OWN = "train erm --data.source-dir {here}/Art --data.target-dir {data}/Clipart {small} --out {here}/out"


def write(name: str, content: str | bytes) -> Prepare:
    data = content.encode() if isinstance(content, str) else content
    return lambda world: (world.here / name).write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def bomb(file: Path, side: int) -> None:
    """A PNG whose header claims side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * (3 * side + 1) * 200)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


DATA_CASES = (
    Case(
        "missing folder",
        "train erm --data.source-dir {here}/gone --data.target-dir {data}/Clipart {small} --out {here}/out",
        ("/gone", "No such file", "check its name"),
        absent="out/config.json",
    ),
    Case("a file for a folder", OWN, ("/Art is a file", "give the folder"), write("Art", "x")),
    Case("empty folder", OWN, ("/Art is empty", "put images there"), lambda world: (world.here / "Art").mkdir()),
    Case(
        "a folder without images",
        OWN,
        ("/Art holds files, but no images", "put images there (jpg"),
        lambda world: [(world.here / "Art" / "cup").mkdir(parents=True), write("Art/cup/notes.txt", "x")(world)],
    ),
    Case(
        "images without class folders",
        OWN,
        ("/Art has images but no class subfolders", "<folder>/<class>/<image>"),
        lambda world: draw(world.here / "Art" / "1.jpg"),
    ),
    Case(
        "one class only",
        OWN,
        ("/Art has only one class, cup", "give two or more"),
        lambda world: draw_domain(world.here / "Art", ("cup",)),
    ),
    Case(
        "zero-byte image",
        OWN,
        ("Art/cup/0.jpg", "0 bytes", "1 of the 12", "--data.on-bad-image skip"),
        own_source(lambda folder: (folder / "cup" / "0.jpg").write_bytes(b"")),
        absent="out/config.json",
    ),
    Case(
        "truncated JPEG",
        OWN,
        ("Art/hat/1.jpg", "truncated", "--data.on-bad-image skip"),
        own_source(lambda folder: truncate(folder / "hat" / "1.jpg")),
    ),
    Case(
        "text named jpg",
        OWN,
        ("Art/cup/0.jpg", "not an image", "tcm data check"),
        own_source(lambda folder: (folder / "cup" / "0.jpg").write_text("<html>404</html>")),
    ),
    Case(
        "every image bad",
        OWN,
        ("12 of the 12", "--data.on-bad-image skip"),
        own_source(lambda folder: [file.write_bytes(b"") for file in folder.rglob("*.jpg")]),
    ),
    Case(
        "odd name that is missing",
        "train erm --data.source-dir {here}/{odd} --data.target-dir {data}/Clipart {small} --out {here}/out",
        (ODD_SHOWN, "No such file", "check its name"),
    ),
    Case(
        "odd name of a bad image",
        OWN,
        (f"Art/cup/{ODD_SHOWN}.jpg", "0 bytes", "--data.on-bad-image skip"),
        own_source(lambda folder: (folder / "cup" / f"{ODD}.jpg").write_bytes(b"")),
    ),
    Case("odd name of a run", "evaluate {here}/{odd}", (ODD_SHOWN, "no run folder", "--out of a run")),
    Case(
        "odd name of a file in the way",
        "train erm {folders} {small} --out {here}/{odd}",
        (f"--out {'{here}'}/{ODD_SHOWN}", "choose another folder"),
        write(ODD, "x"),
    ),
    Case(
        "target class unknown to the source",
        "train erm --data.source-dir {data}/Art --data.target-dir {here}/Clipart {small} --out {here}/out",
        ("/Clipart", "spoon", "--data.target-labels ignore"),
        lambda world: draw(world.own("Clipart") / "spoon" / "1.jpg"),
    ),
    Case(
        "no data", "train erm {small} --out {here}/out", ("no data is given", "--data.benchmark digits", "--data.root")
    ),
    Case(
        "two forms of data",
        TRAIN + " --data.root {data} --data.source Art --data.target Clipart",
        ("both", "--data.source-dir", "--data.root", "give one of"),
    ),
    Case(
        "digits and folders",
        TRAIN + " --data.benchmark digits",
        ("--data.benchmark digits needs no other data", "leave"),
        absent="out",
    ),
    Case(
        "data in part",
        "train erm --data.source-dir {data}/Art {small} --out {here}/out",
        ("in part", "give all of --data.source-dir and --data.target-dir"),
    ),
    Case(
        "unknown benchmark",
        "train erm --data.benchmark office-home {small} --out {here}/out",
        ("--data.benchmark", '"office-home"', "digits"),
        absent="out",
    ),
    Case(
        "unknown domain",
        "train erm --data.root {data} --data.source Art --data.target Clippart {small} --out {here}/out",
        ('"Clippart"', "it has Clipart, Art"),
    ),
)

LISTS = (
    "train erm --data.root {data} --data.source-list {here}/s.txt --data.target-list {here}/t.txt "
    "{small} --out {here}/out"
)


def lists(source: str, target: str = "Clipart/cup/0.jpg\n") -> Prepare:
    return lambda world: [write("s.txt", source)(world), write("t.txt", target)(world)]


LIST_CASES = (
    Case("missing list", LISTS, ("/s.txt", "No such file", "check its name")),
    Case("empty list", LISTS, ("/s.txt", "names no images", "`relative/path label`"), lists("\n# nothing\n")),
    Case(
        "list with a missing image",
        LISTS,
        ("s.txt, line 2", "Art/cup/99.jpg", "correct the line"),
        lists("Art/cup/0.jpg 0\nArt/cup/99.jpg 1\n"),
    ),
    Case(
        "label out of range",
        LISTS,
        ("s.txt, line 3", "label 7 is out of range", "0 to 2"),
        lists("Art/cup/0.jpg 0\nArt/hat/0.jpg 1\nArt/key/0.jpg 7\n"),
    ),
    Case(
        "target label out of range",
        LISTS,
        ("t.txt, line 1", "label 2 is out of range", "0 to 1"),
        lists("Art/cup/0.jpg 0\nArt/hat/0.jpg 1\n", "Clipart/key/0.jpg 2\n"),
    ),
    Case("source list without labels", LISTS, ("s.txt, line 1", "has no label"), lists("Art/cup/0.jpg\n")),
    Case("list that is no text", LISTS, ("s.txt", "save it as UTF-8"), lambda w: write("s.txt", b"\xff\xfe\0")(w)),
)

OPTION_CASES = (
    Case("unknown option", TRAIN + " --stpes 3", ("--stpes", "--steps", "tcm train erm --help"), absent="out"),
    Case("wrong type", TRAIN + " --seed many", ("--seed", "'many'", "tcm train erm --help"), absent="out"),
    Case("wrong type of an optional number", TRAIN + " --steps 1.5", ("--steps", "'1.5' is no INT"), absent="out"),
    Case("wrong choice", TRAIN + " --device gpu", ("--device", "'gpu'", "'cpu', 'cuda'"), absent="out"),
    Case("missing option", "train erm {folders} {small}", ("--out", "tcm train erm --help")),
    Case("option without its value", "train erm {folders} {small} --out", ("--out", "tcm train erm --help")),
    Case("missing argument", "predict {run}", ("Folder of images", "tcm predict --help")),
    Case("report without runs", "report", ("no run folder", "name at least one")),
    Case("unknown command", "trian erm", ('"tcm trian"', 'did you mean "tcm train')),
    Case("command like no other", "xyzzy", ('"tcm xyzzy"', "tcm --help")),
    Case("unknown method", "train drann", ('"tcm train drann"', 'did you mean "tcm train dann"')),
    Case("unknown figure", "figure mechanism", ('did you mean "tcm figure mechanisms"',)),
    Case("unknown data command", "data chek", ('did you mean "tcm data check"',)),
    Case("batch of none", TRAIN + " --batch 0", ("--batch is 0", "give 2 or more"), absent="out"),
    Case("batch of one", TRAIN + " --batch 1", ("--batch is 1", "give 2 or more"), absent="out"),
    Case(
        "batch above the data",
        TRAIN + " --batch 13",
        ("--batch is 13", "Art has 12", "lower it or add images"),
        absent="out/config.json",
    ),
    Case("all held out", TRAIN + " --held-out 1", ("--held-out is 1.0", "give a share from 0 to 0.9"), absent="out"),
    Case(
        "a class held out whole",
        TRAIN + " --held-out 0.9",
        ("--held-out 0.9 leaves no image of cup to train on", "Art has 4", "lower it or add images"),
        absent="out/config.json",
    ),
    Case("no steps", TRAIN + " --steps 0", ("--steps is 0", "give 1 or more"), absent="out"),
    Case("never save", TRAIN + " --save-every 0", ("--save-every is 0", "give 1 or more"), absent="out"),
    Case("never log", TRAIN + " --log-every -5", ("--log-every is -5", "give 1 or more"), absent="out"),
    Case("crop above size", TRAIN + " --data.crop 64", ("--data.crop is 64", "side 32", "give 8 to 32"), absent="out"),
    Case("tiny size", TRAIN + " --data.size 4", ("--data.size is 4", "8 or more"), absent="out"),
    Case("negative rate", TRAIN + " --method.recipe.lr -1", ("--method.recipe.lr is -1.0", "from 0 up"), absent="out"),
    Case("rate without number", TRAIN + " --method.recipe.lr nan", ("--method.recipe.lr is nan",), absent="out"),
    Case(
        "no width",
        TRAIN + " --method.recipe.bottleneck 0",
        ("--method.recipe.bottleneck is 0", "give 1 or more"),
        absent="out",
    ),
    Case(
        "unknown network",
        TRAIN + " --backbone.name ResNet5O",
        ("--backbone.name", '"ResNet5O"', "resnet50", '"small"'),
        absent="out",
    ),
    Case(
        "unknown weights of a network",
        TRAIN + " --backbone.name resnet18.mine --backbone.no-pretrained",
        ('"resnet18.mine"', "resnet18.a1_in1k"),
        absent="out",
    ),
    Case(
        "network of another image size",
        TRAIN + " --backbone.name vit_tiny_patch16_224 --backbone.no-pretrained",
        ("--data.crop is 32", "vit_tiny_patch16_224", "give --data.crop 224"),
        absent="out",
    ),
    Case(
        "missing weights",
        TRAIN + " --backbone.weights {here}/w.safetensors",
        ("--backbone.weights", "/w.safetensors", "check the path"),
        absent="out",
    ),
    Case(
        "weights of another kind of file",
        TRAIN + " --backbone.weights {here}/w.pth",
        ("--backbone.weights", "/w.pth", "no readable safetensors", "save_file"),
        lambda world: torch.save({"w": torch.zeros(3)}, world.here / "w.pth"),
        absent="out",
    ),
    Case(
        "weights of another network",
        TRAIN + " --backbone.weights {here}/w.safetensors",
        ("/w.safetensors", "another network", "--backbone.name"),
        lambda world: safetensors.torch.save_file({"conv.weight": torch.zeros(3)}, world.here / "w.safetensors"),
        absent="out/config.json",
    ),
)

OUT_CASES = (
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
        ("--out", "/out holds other files", "choose a new or empty folder"),
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


MECHANISMS = (
    "mechanisms --data.size 32 --data.crop 32 --steps 2 --batch 4 --device cpu --data.cache {cache} --k 2 "
    "--bank.generator.width 2 --bank.critic.width 2 --bank.critic.halvings 2 --out {here}/out "
)
OWN_MECHANISMS = MECHANISMS + "--data.source-dir {here}/Art --data.target-dir {data}/Clipart"

MECHANISMS_CASES = (
    Case(
        "mechanisms from nothing",
        OWN_MECHANISMS,
        ("/Art is empty", "put images there"),
        lambda world: (world.here / "Art").mkdir(),
        absent="out/config.json",
    ),
    Case(
        "mechanisms to nothing",
        MECHANISMS + "--data.source-dir {data}/Art --data.target-dir {here}/Clipart",
        ("/Clipart is empty", "put images there"),
        lambda world: (world.here / "Clipart").mkdir(),
        absent="out/config.json",
    ),
    Case(
        "mechanisms of a domain smaller than a batch",
        OWN_MECHANISMS + " --batch 7",
        ("--batch is 7", "Art has 6", "lower it or add images"),
        lambda world: draw_domain(world.here / "Art", each=2),
        absent="out/config.json",
    ),
    Case(
        "mechanisms of images too small for the generator",
        MECHANISMS + "{folders} --data.crop 30",
        ("--data.crop is 30", "multiple of 4", "--bank.generator.halvings"),
        absent="out",
    ),
    Case(
        "mechanisms of images too small for the critic",
        MECHANISMS + "{folders} --data.crop 8",
        ("--data.crop is 8", "needs 12 or more", "--bank.critic.halvings"),
        absent="out",
    ),
    Case("too many mechanisms", MECHANISMS + "{folders} --k 1000000000", ("--k is 1000000000", "the memory holds")),
    Case("no mechanisms", MECHANISMS + "{folders} --k 0", ("--k is 0", "1 or more"), absent="out"),
)


USE = "train averaging {folders} {small} --out {here}/out --mechanisms "
OWN_USE = OWN.replace("erm", "averaging") + " --mechanisms {mechanisms}"


def own_mechanisms(spoil: Callable[[Path], object]) -> Prepare:
    """The finished and transported run of stage 1 as a copy in `here`, with something done to it."""
    return lambda world: spoil(Path(shutil.copytree(world.mechanisms, world.here / "mechanisms")))


def relabelled(**changed: object) -> Callable[[Path], None]:
    """Makes the source's transported images say something else of themselves."""

    def spoil(run: Path) -> None:
        file = run / "transported" / "source" / "index.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))

    return spoil


def transported_in_part(run: Path) -> None:
    index = run / "transported" / "target" / "index.json"
    (index.parent / "progress.json").write_text(json.dumps({**json.loads(index.read_text()), "done": 3}))
    index.unlink()


COUNTERFACTUALS_CASES = (
    Case(
        "counterfactuals without mechanisms",
        USE.removesuffix("--mechanisms "),
        ("averaging uses counterfactuals, but --mechanisms is not given", "tcm mechanisms", "tcm transport"),
        absent="out",
    ),
    Case(
        "mechanisms for a method without counterfactuals",
        TRAIN + " --mechanisms {mechanisms}",
        ("--mechanisms is given, but erm uses no counterfactuals", "leave it out"),
        absent="out",
    ),
    Case("mechanisms that are not there", USE + "{here}/gone", ("/gone is no run folder", "--out of a run")),
    Case("mechanisms of a method's run", USE + "{run}", ("/run holds no mechanisms", "tcm mechanisms run")),
    Case(
        "mechanisms that are not finished",
        USE + "{here}/mechanisms",
        ("/mechanisms is not finished", "repeat its train command"),
        own_mechanisms(lambda run: (run / "model.safetensors").unlink()),
    ),
    Case(
        "mechanisms that were not transported",
        USE + "{here}/mechanisms",
        ("transported/source holds no transported images", "tcm transport"),
        own_mechanisms(lambda run: shutil.rmtree(run / "transported")),
    ),
    Case(
        "mechanisms that were transported in part",
        USE + "{here}/mechanisms",
        ("transported/target is not finished: 3 of 12 images", "repeat tcm transport"),
        own_mechanisms(transported_in_part),
    ),
    Case(
        "damaged counterfactuals",
        USE + "{here}/mechanisms",
        ("transported/source is damaged", "repeat tcm transport"),
        own_mechanisms(lambda run: truncate(run / "transported" / "source" / "images.npy")),
    ),
    Case(
        "counterfactuals of another number of mechanisms",
        USE + "{here}/mechanisms",
        ("holds 3 counterfactuals of each image instead of 2", "delete it and repeat tcm transport"),
        own_mechanisms(relabelled(k=3)),
    ),
    Case(
        "counterfactuals of other mechanisms",
        USE + "{here}/mechanisms",
        ("transported/source was made by other mechanisms", "delete it and repeat tcm transport"),
        own_mechanisms(relabelled(mechanisms="others")),
    ),
    Case(
        "counterfactuals of another size",
        USE + "{mechanisms} --data.size 40",
        ("holds images of side 32 instead of 40", "name mechanisms that were trained", "the images of Art"),
    ),
    Case(
        "counterfactuals of fewer images",
        OWN_USE,
        ("holds the counterfactuals of 12 images instead of 13", "the images of Art"),
        own_source(lambda folder: draw(folder / "cup" / "9.jpg", seed=9)),
    ),
    Case(
        "counterfactuals of other images",
        OWN_USE,
        ("transported/source was made of other images", "the images of Art"),
        own_source(lambda folder: draw(folder / "cup" / "0.jpg", seed=9)),
    ),
    Case(
        "mechanisms that cannot transform the crop",
        USE + "{mechanisms} --data.crop 30",
        ("--data.crop is 30", "need a multiple of 4", "change --data.crop"),
    ),
)


TCM = "train tcm {folders} {small} --out {here}/out --mechanisms {mechanisms} "
NO_LABELS = "--method.plain 0 --method.counterfactual 0 "


def contradicted(name: str, options: str, *expected: str) -> Case:
    """Settings of tcm that need each other and are not given together: nothing is written."""
    return Case(name, TCM + options, (*expected, "set both or neither"), absent="out")


STAGE2_CASES = (
    Case(
        "a preset of a method without presets",
        TRAIN + " --preset paper",
        ("--preset is paper, but erm has no presets", "leave it out"),
        absent="out",
    ),
    Case("a preset that is not there", TCM + "--preset papers", ("papers", "paper"), absent="out"),
    Case(
        "the Baseline with two mechanisms",
        TCM.replace("train tcm", "train baseline"),
        ("the Baseline has one mechanism, but --mechanisms has 2", "--preset paper --k 1"),
    ),
    contradicted("agreement without labels", NO_LABELS, "--method.agreement above 0 needs --method.plain or"),
    contradicted(
        "a prediction without a classifier",
        NO_LABELS + "--method.agreement 0",
        "--method.prediction average needs --method.plain or --method.counterfactual above 0",
    ),
    contradicted(
        "labels for no counterfactuals",
        "--method.source-views 0",
        "--method.counterfactual above 0 needs --method.source-views of 1 or more",
    ),
    contradicted(
        "an adjusted prediction without a head",
        "--method.prediction adjusted",
        "--method.prediction adjusted needs --method.head.weight above 0",
    ),
    contradicted(
        "a head without counterfactuals",
        "--method.head.weight 1 --method.target-views 0",
        "--method.head.weight above 0 needs --method.source-views and --method.target-views of 1 or more",
    ),
    contradicted(
        "predicted classes without a classifier",
        "--method.plain 0 --method.counterfactual 0 --method.agreement 0 --method.head.weight 1 "
        "--method.prediction adjusted",
        "--method.alignment.kind conditional needs --method.plain or --method.counterfactual above 0",
    ),
    contradicted(
        "proxies without counterfactuals",
        "--method.alignment.kind proxies --method.target-views 0",
        "--method.alignment.kind proxies needs --method.source-views and --method.target-views",
    ),
)


def spoiled(file: str, change: Callable[[bytes], bytes], *, unfinished: bool = False) -> Prepare:
    """A copy of the run with one file changed; an unfinished run has no model yet."""

    def prepare(world: World) -> None:
        run = world.copy("out")
        (run / file).write_bytes(change((run / file).read_bytes()))
        if unfinished:
            (run / "model.safetensors").unlink()

    return prepare


def with_unknown_key(content: bytes) -> bytes:
    """config.json with a key of some other version."""
    return json.dumps({**json.loads(content), "colour": "blue"}).encode()


def model_with_unknown_key(content: bytes) -> bytes:
    """model.safetensors whose configuration has a key of some other version."""
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header["__metadata__"]["tcm"])
    about["config"]["sede"] = 0
    header["__metadata__"]["tcm"] = json.dumps(about)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def trained_then_removed(*folders: str) -> Prepare:
    """A run on its own copy of the data, of which these folders are gone since."""

    def prepare(world: World) -> None:
        for name in ("Art", "Clipart"):
            world.own(name)
        options = "--data.root {here} --data.source Art --data.target Clipart {small} --out {here}/out --quiet"
        assert main(world.words(f"train erm {options}")) == 0
        for folder in folders:
            shutil.rmtree(world.here / folder)

    return prepare


RUN_CASES = (
    Case(
        "corrupt state",
        TRAIN,
        ("out/state.pt is damaged", "delete it"),
        spoiled("state.pt", lambda content: content[:5000], unfinished=True),
    ),
    Case(
        "empty state",
        TRAIN,
        ("out/state.pt is damaged", "delete it"),
        spoiled("state.pt", lambda _: b"", unfinished=True),
    ),
    Case(
        "state of another model",
        TRAIN + " --method.recipe.bottleneck 64",
        ("out/state.pt belongs to another model", "delete it"),
        spoiled(
            "config.json", lambda content: content.replace(b'"bottleneck": 256', b'"bottleneck": 64'), unfinished=True
        ),
    ),
    Case("corrupt config", TRAIN, ("out/config.json is damaged", "--out"), spoiled("config.json", lambda c: c[:40])),
    Case("report on a corrupt config", "report {here}/out", ("config.json",), spoiled("config.json", lambda c: c[:40])),
    Case("unknown key in the config", TRAIN, ('colour: "blue" -> null',), spoiled("config.json", with_unknown_key)),
    Case(
        "unknown key in the model",
        "predict {here}/out {data}/Art",
        ("/out", '"sede"', 'did you mean "seed"'),
        spoiled("model.safetensors", model_with_unknown_key),
    ),
    Case(
        "corrupt model",
        "predict {here}/out {data}/Art",
        ("out/model.safetensors is damaged", "repeat the train command"),
        spoiled("model.safetensors", lambda content: content[:1000]),
    ),
    Case(
        "corrupt predictions",
        "report {here}/out",
        ("out/evaluation.npz is damaged", "tcm evaluate"),
        spoiled("evaluation.npz", lambda content: content[:1000]),
    ),
    Case(
        "unfinished run",
        "predict {here}/out {data}/Art",
        ("/out is not finished", "repeat its train command"),
        lambda world: (world.copy("out") / "model.safetensors").unlink(),
    ),
    Case("predict without a run", "predict {data} {data}/Art", ("/data is no run folder", "--out of a run")),
    Case("run given as a file", "predict {run}/model.safetensors {data}", ("model.safetensors is no run folder",)),
    Case("transport of a method's run", "transport {run}", ("/run holds no mechanisms", "tcm mechanisms run")),
    Case("transport without a run", "transport {here}/gone", ("/gone is no run folder", "--out of a run")),
    Case("figure of a method's run", "figure mechanisms {run}", ("/run holds no mechanisms", "tcm mechanisms run")),
    Case("figure of no images", "figure mechanisms {run} --images 0", ("--images is 0", "give 1 or more")),
    Case(
        "figure in an unknown format",
        "figure mechanisms {run} --out {here}/x.jpgg",
        ("--out", "/x.jpgg", "end it in .png, .svg, .pdf"),
    ),
    Case("evaluate without a run", "evaluate {here}/gone", ("/gone is no run folder", "--out of a run")),
    Case("report without a run", "report {data}", ("/data is no run folder", "--out of a run")),
    Case("report on nothing", "report {here}/gone", ("/gone is no folder", "--out folder of a run")),
    Case("predict an empty folder", "predict {run} {here}", ("holds no images (jpg", "give the folder")),
    Case("predict a missing folder", "predict {run} {here}/gone", ("/gone", "No such file", "check its name")),
    Case("predict one image", "predict {run} {data}/Art/cup/0.jpg", ("0.jpg is a file", "give the folder")),
    Case(
        "predict bad images only",
        "predict {run} {here}",
        ("none of the 1 images", "0 bytes"),
        write("x.jpg", b""),
    ),
    Case(
        "data gone since",
        "evaluate {here}/out",
        ('has no domain "Art"', "it has Clipart"),
        trained_then_removed("Art"),
    ),
    Case(
        "class gone since",
        "evaluate {here}/out",
        ("classes of Art are hat, key", "trained on cup, hat, key", "restore the data"),
        trained_then_removed("Art/cup", "Clipart/cup"),
    ),
)


def store(**columns: str) -> Prepare:
    """A CSV of one result, {here}/s.csv."""
    usual = {"version": VERSION, "benchmark": "digits", "task": "source>target", "selection": "last", "config": "{}"}
    row = {**dict.fromkeys(COLUMNS, ""), **usual, "accuracy": "50", "mean_class_accuracy": "50", **columns}
    return lambda world: add_rows(world.here / "s.csv", [row])


TABLE = "table {here}/s.csv"
TABLE_CASES = (
    Case("table of nothing", "table", ("no results are named", "name at least one")),
    Case("table of a missing file", TABLE, ("/s.csv cannot be read (No such file", "name a CSV of results")),
    Case("table of a folder", "table {here}", ("cannot be read (Is a directory)", "name a CSV of results")),
    Case("table of a run", "table {run}/config.json", ("config.json is no such table of results", "columns differ")),
    Case("table of an empty file", TABLE, ("there are no results on any benchmark",), write("s.csv", b"")),
    Case(
        "table of another version",
        TABLE,
        ("/s.csv is a store of version 0, and this is version 1", "use the tcm that wrote it"),
        lambda world: write("s.csv", ",".join(COLUMNS) + "\n0" + "," * (len(COLUMNS) - 1) + "\n")(world),
    ),
    Case(
        "table of an unknown benchmark",
        TABLE + " --benchmark Offise",
        ("no results on Offise", "there are those on digits"),
        store(),
    ),
    Case("table in an unknown format", TABLE + " --format pdf", ("--format", "'pdf'", "'latex', 'csv'"), store()),
    Case(
        "table by an unknown rule",
        TABLE + " --selection entropy",
        ("no results with --selection entropy", "there are: last"),
        store(),
    ),
    Case("table without accuracies", TABLE, ("no accuracies", "no labels"), store(accuracy="")),
    Case("table with a wrong number", TABLE, ("/s.csv: row 1 is damaged", "'many'", "mend"), store(accuracy="many")),
    Case("table onto a folder", TABLE + " --out {here}", ("--out", "it is a folder", "choose another file"), store()),
    Case("table in a missing folder", TABLE + " --out {here}/no/x", ("--out", "/no/x", "choose another file"), store()),
)


@pytest.mark.parametrize(
    "case",
    [
        *DATA_CASES,
        *LIST_CASES,
        *OPTION_CASES,
        *OUT_CASES,
        *RUN_CASES,
        *MECHANISMS_CASES,
        *COUNTERFACTUALS_CASES,
        *STAGE2_CASES,
        *TABLE_CASES,
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    case.prepare(world)
    before = contents(world.here, world.data, world.run, world.mechanisms)
    said = refusal(capfd, world.words(case.command))
    for part in case.says:
        assert part.replace("{here}", str(world.here)) in said
    after = contents(world.here, world.data, world.run, world.mechanisms)
    assert {file: after.get(file) for file in before} == before
    assert not case.absent or not (world.here / case.absent).exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", [TRAIN, "evaluate {run}", "predict {run} {data}/Art"])
def test_no_gpu(world: World, capfd: pytest.CaptureFixture[str], command: str):
    said = refusal(capfd, world.words(f"{command} --device cuda"))
    assert "no GPU is available" in said
    assert "use --device cpu" in said
    assert not (world.here / "out").exists()


@pytest.mark.parametrize("side", [10_001, 12_000, 20_000])
def test_an_image_that_claims_to_be_huge_is_refused_by_its_header(
    world: World, capfd: pytest.CaptureFixture[str], side: int
):
    bomb(world.own() / "cup" / "0.png", side)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = refusal(capfd, world.words(OWN))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB; the pixels take 0.3 to 1.2 GB
    for part in ("Art/cup/0.png", "the limit is 100 megapixels", "--data.on-bad-image skip"):
        assert part in said


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


@pytest.mark.parametrize(
    ("rate", "found"), [("1e30", "the loss is not finite at step"), ("3e38", "the weights are not")]
)
def test_numbers_that_run_away_stop_the_run_and_keep_the_last_good_state(
    world: World, capfd: pytest.CaptureFixture[str], rate: str, found: str
):
    options = f"--method.recipe.lr {rate} --steps 8 --save-every 1 --log-every 1"
    said = refusal(capfd, world.words(f"{TRAIN} {options}"))
    for part in (found, " step ", "state.pt" if rate == "1e30" else "nothing was saved", "lower --method.recipe.lr"):
        assert part in said
    assert not (world.here / "out" / "model.safetensors").exists()
    state = world.here / "out" / "state.pt"
    if rate == "1e30":
        learner = torch.load(state, weights_only=True)["learner"]
        assert all(bool(value.isfinite().all()) for value in learner.values())
        kept = state.read_bytes()
        assert refusal(capfd, world.words(f"{TRAIN} {options}")) == said
        assert state.read_bytes() == kept
    else:
        assert not state.exists()


def test_two_processes_in_one_folder(world: World, capfd: pytest.CaptureFixture[str]):
    run = world.copy("out")
    before = contents(run)
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = refusal(capfd, world.words(TRAIN))
    for part in ("--out", "/out is in use", "wait for it or choose another"):
        assert part in said
    assert contents(run) == before


def test_after_a_mistake_the_corrected_command_may_use_the_folder(world: World, capfd: pytest.CaptureFixture[str]):
    refusal(capfd, world.words(f"{TRAIN} --batch 13"))
    refusal(capfd, world.words(TRAIN.replace("{folders}", "--data.source-dir {data}/Art")))
    assert main(world.words(f"{TRAIN} --quiet")) == 0


def test_a_failed_prediction_leaves_the_old_table(world: World, capfd: pytest.CaptureFixture[str]):
    table = world.here / "x.csv"
    table.write_text("old")
    refusal(capfd, world.words("predict {run} {here} --csv {here}/x.csv"))
    assert table.read_text() == "old"


def test_bad_images_are_left_out_of_a_prediction_and_named(world: World, capfd: pytest.CaptureFixture[str]):
    folder = world.here / "new"
    draw(folder / "good.jpg")
    draw(folder / "deep" / "good.png")
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.png").write_text("x")
    (folder / f"{ODD}.jpg").write_text("x")
    truncate(draw(folder / "cut.jpg"))
    bomb(folder / "bomb.png", 20_000)
    capfd.readouterr()
    assert main(world.words("predict {run} {here}/new --csv {here}/x.csv")) == 0
    said = capfd.readouterr()
    assert "2 images classified" in said.out
    lines = said.err.splitlines()
    assert len(lines) == 5
    for name, reason in (
        ("empty.jpg", "0 bytes"),
        ("text.png", "not an image"),
        (f"{ODD_SHOWN}.jpg", "not an image"),
        ("cut.jpg", "truncated"),
        ("bomb.png", "100 megapixels"),
    ):
        assert any(line.startswith(f"not classified: {name}: ") and reason in line for line in lines)
    with (world.here / "x.csv").open(newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == ["deep/good.png", "good.jpg"]


def test_bad_images_may_be_skipped_in_training(world: World, capfd: pytest.CaptureFixture[str]):
    (world.own() / "cup" / "0.jpg").write_bytes(b"")
    capfd.readouterr()
    assert main(world.words(f"{OWN} --data.on-bad-image skip --quiet")) == 0
    said = capfd.readouterr().err
    assert said.startswith("warning: 1 of the 12 images of Art cannot be read")
    assert said.count("\n") == 1
    assert json.loads((world.here / "out" / "evaluation.json").read_text())["source"]["images"] == 11


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_class_with_one_image_is_told_and_trained_on(world: World, capfd: pytest.CaptureFixture[str], preset: str):
    own = world.own()
    for number in range(1, 4):
        (own / "hat" / f"{number}.jpg").unlink()
    folders = "--data.source-dir {here}/Art --data.target-dir {data}/Clipart --quiet "
    assert main(world.words(MECHANISMS.replace("{here}/out", "{here}/mechanisms") + folders)) == 0
    assert main(world.words("transport {here}/mechanisms --device cpu --quiet")) == 0
    capfd.readouterr()
    use = "train tcm {small} --out {here}/out --mechanisms {here}/mechanisms --preset "
    assert main(world.words(use + preset + " " + folders)) == 0
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("warning: the source ")
    assert said.endswith("/Art has a single image of 1 of its 3 classes: hat; a class takes more")


def test_odd_names_work_from_end_to_end(world: World):
    home = world.here / ODD
    classes = (ODD, "[bold]", "ключ")
    for domain in ("s", "t"):
        draw_domain(home / f"{domain} {ODD}", classes)
    os.rename(home / f"t {ODD}" / "ключ", bytes(home / f"t {ODD}") + b"/kl\xfc")  # a name that is not UTF-8
    os.rename(home / f"s {ODD}" / "ключ", bytes(home / f"s {ODD}") + b"/kl\xfc")
    run, table = home / "run", home / "x.csv"
    folders = ["--data.source-dir", f"{home}/s {ODD}", "--data.target-dir", f"{home}/t {ODD}"]
    assert main(["train", "erm", *folders, *world.words("{small} --quiet --out"), str(run)]) == 0
    assert main(["predict", str(run), f"{home}/t {ODD}", "--csv", str(table)]) == 0
    assert main(["evaluate", str(run), "--quiet"]) == 0
    assert main(["report", str(run), "--quiet"]) == 0
    assert (run / "report" / "index.html").stat().st_size > 10_000
    with table.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert {row["path"].split("/")[0] for row in rows} == {ODD, "[bold]", os.fsdecode(b"kl\xfc")}
    assert {row["class"] for row in rows} <= {ODD, "[bold]", os.fsdecode(b"kl\xfc")}


def test_domains_of_other_image_sizes_and_shapes_give_mechanisms(world: World, capfd: pytest.CaptureFixture[str]):
    for place, file in enumerate(sorted(world.own().rglob("*.jpg"))):
        Image.new("RGB", [(20, 90), (300, 33), (8, 8)][place % 3], (place, 80, 200)).save(file)
    assert main(world.words(OWN_MECHANISMS + " --quiet")) == 0
    assert "share of wins" in capfd.readouterr().out


def test_any_integer_is_a_seed(world: World):
    assert main(world.words(f"{TRAIN} --seed -1 --quiet")) == 0


def test_an_unfinished_run_can_be_reported(world: World):
    run = world.copy("out")
    for name in ("model.safetensors", "evaluation.json", "evaluation.npz"):
        (run / name).unlink()
    assert main(["report", str(run), "--quiet"]) == 0
    assert "Art" in (run / "report" / "index.html").read_text()
