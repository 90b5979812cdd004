"""Mistakes with runs: damaged, unfinished, of other data, running away; and with images to predict."""

import csv
import json
import shutil
import struct
from collections.abc import Callable

import pytest
import torch
from support.mistakes import (
    MECHANISMS,
    ODD,
    ODD_SHOWN,
    TRAIN,
    Case,
    Prepare,
    World,
    bomb,
    draw,
    refusal,
    require_refusal,
    truncate,
    write,
)

from tcm.cli.app import main
from tcm.data.task import DataConfig
from tcm.pipeline.folder import FitFolder
from tcm.pipeline.plan import Plan


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


def without_a_class(world: World) -> None:
    """A run on its own copy of the data, of which a class is gone since; the target still has enough images."""
    trained_then_removed("Art/cup", "Clipart/cup")(world)
    for number in (8, 9):
        draw(world.here / "Clipart" / "hat" / f"{number}.jpg", seed=5000 + number)


def begun_then_more_images(world: World) -> None:
    """An unfinished run on its own copy of the data, to which an image was added since."""
    trained_then_removed()(world)
    (world.here / "out" / "model.safetensors").unlink()
    draw(world.here / "Clipart" / "cup" / "more.jpg", seed=5000)


CASES = (
    Case(
        "images added since",
        "train erm --data.root {here} --data.source Art --data.target Clipart {small} --out {here}/out",
        ("out was started with other images", "restore them or choose another --out"),
        begun_then_more_images,
    ),
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
        ("/out is not finished", "repeat its command"),
        lambda world: (world.copy("out") / "model.safetensors").unlink(),
    ),
    Case("predict without a run", "predict {data} {data}/Art", ("/data is not a run folder", "--out of a run")),
    Case("run given as a file", "predict {run}/config.json {data}", ("config.json is not a run folder",)),
    Case(
        "a model that is no model",
        "predict {here}/x.safetensors {data}",
        ("x.safetensors is damaged",),
        write("x.safetensors", b"x"),
    ),
    Case("transport of a method's run", "transport {run}", ("/run holds no mechanisms", "tcm mechanisms run")),
    Case("transport without a run", "transport {here}/gone", ("/gone is not a run folder", "--out of a run")),
    Case("figure of a method's run", "figure mechanisms {run}", ("/run holds no mechanisms", "tcm mechanisms run")),
    Case("figure of no images", "figure mechanisms {run} --images 0", ("--images is 0", "give 1 or more")),
    Case(
        "figure in an unknown format",
        "figure mechanisms {run} --out {here}/x.jpgg",
        ("--out", "/x.jpgg", "end it in .png, .svg, .pdf"),
    ),
    Case("evaluate without a run", "evaluate {here}/gone", ("/gone is not a run folder", "--out of a run")),
    Case("report without a run", "report {data}", ("/data is not a run folder", "--out of a run")),
    Case("report on nothing", "report {here}/gone", ("/gone is not a folder", "name the folder of a run")),
    Case("predict an empty folder", "predict {run} {here}", ("holds no images (jpg", "give the folder")),
    Case("predict a missing folder", "predict {run} {here}/gone", ("/gone", "No such file", "check its name")),
    Case(
        "predict bad images only",
        "predict {run} {here}",
        ("none of the 1 images", "0 bytes"),
        write("x.jpg", b""),
    ),
    Case("predict one bad image", "predict {run} {here}/x.jpg", ("/x.jpg cannot be read: ",), write("x.jpg", b"")),
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
        without_a_class,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)


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


HEAD = "train tcm-paper {folders} {small} --mechanisms {mechanisms} --out {here}/out --method.head.vae-lr 1e38"


@pytest.mark.parametrize(
    ("command", "rates"),
    [
        (HEAD, "--method.recipe.lr or --method.head.vae-lr"),
        (MECHANISMS + "{folders} --bank.lr 3e38", "--bank.lr or --bank.critic-lr"),
        (MECHANISMS + "{folders} --bank.critic-lr 3e38", "--bank.lr or --bank.critic-lr"),
    ],
)
def test_a_rate_that_overflows_in_the_optimizer_stops_the_run(
    world: World, capfd: pytest.CaptureFixture[str], command: str, rates: str
):
    said = refusal(capfd, world.words(command))
    for part in ("step 1 would change the weights by more than float32", "nothing was saved yet", f"lower {rates} in"):
        assert part in said
    assert not (world.here / "out" / "model.safetensors").exists()


def test_a_failed_prediction_leaves_the_old_table(world: World, capfd: pytest.CaptureFixture[str]):
    table = world.here / "x.csv"
    table.write_text("old")
    refusal(capfd, world.words("predict {run} {here} --csv {here}/x.csv"))
    assert table.read_text() == "old"


def test_the_folder_of_a_fit_stands_for_the_runs_inside(world: World, capfd: pytest.CaptureFixture[str]):
    """As `tcm fit` leaves it, with a run for each stage."""
    world.copy("fit/erm")
    shutil.copytree(world.mechanisms, world.here / "fit" / "mechanisms")
    plan = Plan(DataConfig(), ("erm",), False, 2, steps=2, batch=4, mechanism_steps=2, mechanism_batch=4, held_out=0.0)
    FitFolder(world.here / "fit").start({}, plan)
    assert "is not finished; repeat" in refusal(capfd, world.words("predict {here}/fit {data}/Art"))
    FitFolder(world.here / "fit").finish("erm", "the only one")
    assert main(world.words("predict {here}/fit {data}/Art")) == 0
    inside = capfd.readouterr().out
    assert main(world.words("predict {run} {data}/Art")) == 0
    assert capfd.readouterr().out == inside
    assert main(world.words("evaluate {here}/fit --quiet")) == 0
    assert main(world.words("report {here}/fit")) == 0
    page = world.here / "fit" / "report" / "index.html"
    assert capfd.readouterr().out.strip().endswith(str(page))
    assert all(f"{world.here}/fit/{name}" in page.read_text() for name in ("erm", "mechanisms"))


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
    assert main(world.words("predict {run} {here}/new --csv {here}/x.csv")) == 1
    said = capfd.readouterr()
    assert "2 images classified" in said.out
    lines = said.err.splitlines()
    assert len(lines) == 6
    assert lines[-1] == "5 of 7 images could not be read"
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


def test_an_unfinished_run_can_be_reported(world: World):
    run = world.copy("out")
    for name in ("model.safetensors", "evaluation.json", "evaluation.npz"):
        (run / name).unlink()
    assert main(["report", str(run), "--quiet"]) == 0
    assert "Art" in (run / "report" / "index.html").read_text()
