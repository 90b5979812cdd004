"""Mistakes in the data: folders, images and list files."""

import csv
import json
import os
import resource

import pytest
from support.mistakes import (
    ODD,
    ODD_SHOWN,
    OWN,
    TRAIN,
    Case,
    Prepare,
    World,
    bomb,
    draw,
    draw_domain,
    own_source,
    refusal,
    require_refusal,
    truncate,
    write,
)

from tcm.cli.app import main

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
        ("/Art has files, but no images", "put images there (jpg"),
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
    Case("odd name of a run", "evaluate {here}/{odd}", (ODD_SHOWN, "not a run folder", "--out of a run")),
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
        ("a part of the data", "give all of --data.source-dir and --data.target-dir"),
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
    Case("list that is not text", LISTS, ("s.txt", "save it as UTF-8"), lambda w: write("s.txt", b"\xff\xfe\0")(w)),
)


@pytest.mark.parametrize("case", [*DATA_CASES, *LIST_CASES], ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)


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


def test_bad_images_may_be_skipped_in_training(world: World, capfd: pytest.CaptureFixture[str]):
    draw(world.own() / "cup" / "0.jpg", seed=9).with_name("bad.jpg").write_bytes(b"")
    capfd.readouterr()
    assert main(world.words(f"{OWN} --data.on-bad-image skip --quiet")) == 0
    said = capfd.readouterr().err
    assert said.startswith("warning: 1 of the 13 images of Art cannot be read")
    assert said.count("\n") == 1
    assert json.loads((world.here / "out" / "evaluation.json").read_text())["source"]["images"] == 12


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


def test_a_check_names_what_cannot_be_read_and_the_option(world: World, capsys: pytest.CaptureFixture[str]):
    (world.own() / "cup" / "0.jpg").write_bytes(b"")
    assert main(world.words("data check {here} --quiet")) == 1
    said = " ".join(capsys.readouterr().out.split())
    for part in ("cup/0.jpg: the file is empty", "There are problems", "--data.on-bad-image skip"):
        assert part in said
