"""Mistakes with mechanisms: in stage 1, and in what stage 2 is given of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from support.mistakes import (
    MECHANISMS,
    OWN,
    OWN_MECHANISMS,
    TRAIN,
    Case,
    Prepare,
    World,
    draw,
    draw_domain,
    own_source,
    require_refusal,
    truncate,
)

from tcm.cli.app import main

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
        OWN_MECHANISMS + " --batch 13",
        ("--batch is 13", "Art has 12", "lower it or add images"),
        lambda world: draw_domain(world.here / "Art"),
        absent="out/config.json",
    ),
    Case(
        "mechanisms of images too small for the generator",
        MECHANISMS + "{folders} --data.crop 31",
        ("--data.crop is 31", "multiple of 2", "--bank.generator.halvings"),
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
    Case(
        "a memory of more than all",
        MECHANISMS + "{folders} --bank.beta1 1.5",
        ("--bank.beta1 is 1.5", "less than 1"),
        absent="out",
    ),
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


def stores_exchanged(run: Path) -> None:
    source, target, aside = (run / "transported" / name for name in ("source", "target", "aside"))
    source.rename(aside)
    target.rename(source)
    aside.rename(target)


COUNTERFACTUALS_CASES = (
    Case(
        "counterfactuals without mechanisms",
        USE.removesuffix("--mechanisms "),
        ("--mechanisms is not given, but averaging uses counterfactuals", "tcm mechanisms", "tcm transport"),
        absent="out",
    ),
    Case(
        "mechanisms for a method without counterfactuals",
        TRAIN + " --mechanisms {mechanisms}",
        ("--mechanisms is given, but erm uses no counterfactuals", "leave it out"),
        absent="out",
    ),
    Case("mechanisms that are not there", USE + "{here}/gone", ("/gone is not a run folder", "--out of a run")),
    Case("mechanisms of a method's run", USE + "{run}", ("/run holds no mechanisms", "tcm mechanisms run")),
    Case(
        "mechanisms that are not finished",
        USE + "{here}/mechanisms",
        ("/mechanisms is not finished", "repeat its command"),
        own_mechanisms(lambda run: (run / "model.safetensors").unlink()),
    ),
    Case(
        "mechanisms that were not transported",
        USE + "{here}/mechanisms",
        ("transported/source holds no transported images", "tcm transport"),
        own_mechanisms(lambda run: shutil.rmtree(run / "transported")),
    ),
    Case(
        "mechanisms whose target was not transported",
        USE + "{here}/mechanisms",
        ("transported/target holds no transported images", "tcm transport {here}/mechanisms"),
        own_mechanisms(lambda run: shutil.rmtree(run / "transported" / "target")),
    ),
    Case(
        "counterfactuals of the other domain",
        USE + "{here}/mechanisms",
        ("transported/source was made from other images", "the images of Art"),
        own_mechanisms(stores_exchanged),
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
        ("transported/source is damaged", "repeat tcm transport {here}/mechanisms"),  # a copy: not where it was made
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
        ("transported/source was made from other images", "the images of Art"),
        own_source(lambda folder: draw(folder / "cup" / "0.jpg", seed=9)),
    ),
    Case(
        "mechanisms that cannot transform the crop",
        USE + "{mechanisms} --data.crop 31",
        ("--data.crop is 31", "need a multiple of 2", "change --data.crop"),
    ),
)


TCM = "train tcm {folders} {small} --out {here}/out --mechanisms {mechanisms} "


STAGE2_CASES = (
    Case("a form of the mechanisms that is not there", MECHANISMS + "{folders} --form papers", ("papers", "paper")),
    Case(
        "the Baseline with two mechanisms",
        TCM.replace("train tcm", "train baseline"),
        ("--mechanisms has 2 mechanisms", "uses 1", "--k 1"),
    ),
)


@pytest.mark.parametrize("case", [*MECHANISMS_CASES, *COUNTERFACTUALS_CASES, *STAGE2_CASES], ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)


def test_domains_of_other_image_sizes_and_shapes_give_mechanisms(world: World, capfd: pytest.CaptureFixture[str]):
    for place, file in enumerate(sorted(world.own().rglob("*.jpg"))):
        Image.new("RGB", [(20, 90), (300, 33), (8, 8)][place % 3], (place, 80, 200)).save(file)
    assert main(world.words(OWN_MECHANISMS + " --quiet")) == 0
    assert "share of wins" in capfd.readouterr().out


@pytest.mark.parametrize("form", ["tcm", "tcm-paper"])
def test_a_class_with_one_image_is_reported_and_trained_on(world: World, capfd: pytest.CaptureFixture[str], form: str):
    own = world.own()
    for number in range(1, 4):
        (own / "hat" / f"{number}.jpg").unlink()
    folders = "--data.source-dir {here}/Art --data.target-dir {data}/Clipart --quiet "
    assert main(world.words(MECHANISMS.replace("{here}/out", "{here}/mechanisms") + folders)) == 0
    assert main(world.words("transport {here}/mechanisms --device cpu --quiet")) == 0
    capfd.readouterr()
    use = " {small} --out {here}/out --mechanisms {here}/mechanisms "
    assert main(world.words("train " + form + use + folders)) == 0
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("warning: the source ")
    assert said.endswith("/Art has only one image for 1 of its 3 classes: hat; add images of them")
