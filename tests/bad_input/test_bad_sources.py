"""Mistakes in a list of several sources."""

import shutil

import pytest
from support.mistakes import Case, World, draw, draw_domain, require_refusal

NAMED = "train erm --data.root {here} --data.source %s --data.target Clipart {small} --out {here}/out"
FOLDERS = "train erm --data.source-dir {data}/Art,{here}/%s --data.target-dir {data}/Clipart {small} --out {here}/out"


def domains(world: World) -> None:
    """Art, Sketch and Clipart in a root of one's own."""
    draw_domain(world.here / "Sketch", first_seed=5000)
    for name in ("Art", "Clipart"):
        shutil.copytree(world.data / name, world.here / name)


CASES = (
    Case("unknown source", NAMED % "Art,Skech", ('"Skech"', "it has Sketch, "), domains, absent="out/config.json"),
    Case(
        "a source twice", NAMED % "Art,Sketch,art", ("/Art is named twice", "once"), domains, absent="out/config.json"
    ),
    Case(
        "empty entry",
        NAMED % "Art,",
        ("--data.source", 'empty entry in "Art,"', "comma"),
        domains,
        absent="out/config.json",
    ),
    Case("no entry", NAMED % ",", ("--data.source", "empty entry", "comma"), domains, absent="out/config.json"),
    Case(
        "a source that is the target",
        NAMED % "Art,clip_art,Sketch",
        ("/Clipart is one of the sources and also the target", "name it once"),
        domains,
        absent="out/config.json",
    ),
    Case(
        "a source without class folders",
        FOLDERS % "flat",
        ("/flat has images but no class subfolders", "<folder>/<class>/<image>"),
        lambda world: draw(world.here / "flat" / "1.jpg"),
        absent="out/config.json",
    ),
    Case(
        "a source without images",
        FOLDERS % "empty",
        ("/empty is empty", "put images there"),
        lambda world: (world.here / "empty").mkdir(),
        absent="out/config.json",
    ),
    Case("a missing source", FOLDERS % "gone", ("/gone: No such file", "check its name"), absent="out/config.json"),
    Case(
        "the folder of the target among the sources",
        "train erm --data.source-dir {data}/Art,{data}/Clipart --data.target-dir {data}/Clipart --out {here}/out",
        ("/Clipart is one of the sources and also the target",),
        absent="out/config.json",
    ),
    Case(
        "a missing source of a fit",
        "fit {data}/Art,{here}/gone {data}/Clipart --out {here}/out --device cpu",
        ("/gone: No such file",),
        absent="out/fit.json",
    ),
)


@pytest.mark.filterwarnings("ignore:the source:UserWarning")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)
