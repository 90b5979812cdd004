"""Mistakes with exported files."""

import shutil
import sys
from pathlib import Path

import pytest
from support.mistakes import Case, World, contents, refusal, require_refusal, write

EXPORT = "export {run} --format pt2 --out {here}/model.pt2"


def unfinished(world: World) -> None:
    (world.copy("half") / "model.safetensors").unlink()


def without_data(world: World) -> None:
    """A folder with the model alone, whose images are gone."""
    (world.here / "moved").mkdir()
    shutil.copy(world.run / "model.safetensors", world.here / "moved")


CASES = (
    Case(
        "not a run",
        "export {data} --format pt2 --out {here}/m.pt2",
        ("is not a run folder", "name the --out"),
        absent="m.pt2",
    ),
    Case(
        "no folder", "export {here}/no --format onnx --out {here}/m.onnx", ("/no is not a run folder",), absent="m.onnx"
    ),
    Case(
        "unfinished",
        "export {here}/half --format pt2 --out {here}/m.pt2",
        ("/half is not finished",),
        unfinished,
        "m.pt2",
    ),
    Case("unknown format", "export {run} --format tflite --out {here}/m", ("tflite", "onnx", "pt2", "hub"), absent="m"),
    Case("no format", "export {run} --out {here}/m", ("--format",), absent="m"),
    Case(
        "missing folder",
        "export {run} --format pt2 --out {here}/no/m.pt2",
        ("--out", "/no, which is not a folder", "make it"),
    ),
    Case("existing file", EXPORT, ("--out", "/model.pt2 exists", "--overwrite"), write("model.pt2", "precious")),
    Case("file is a folder", "export {run} --format onnx --out {here}", ("--out", "is a folder", "writes a file")),
    Case(
        "folder is a file",
        "export {run} --format hub --out {here}/x",
        ("is a file", "writes a folder"),
        write("x", "precious"),
    ),
    Case(
        "folder with files",
        "export {run} --format hub --out {here}",
        ("is not empty", "--overwrite"),
        write("x", "precious"),
    ),
    Case(
        "mechanisms as a classifier",
        "export {mechanisms} --format pt2 --out {here}/m",
        ("holds no classifier",),
        absent="m",
    ),
    Case(
        "classifier as mechanisms",
        "export {run} --what mechanisms --format pt2 --out {here}/m",
        ("holds no mechanisms",),
    ),
    Case(
        "images gone",
        "export {here}/moved --format pt2 --out {here}/m",
        ("--images", "name a folder of images"),
        without_data,
        "m",
    ),
    Case("no images", "export {run} --format pt2 --out {here}/m --images {here}", ("holds no images",), absent="m"),
    Case("push of a file", EXPORT + " --push me/model", ("--push", "--format hub"), absent="model.pt2"),
    Case(
        "preprocessing of a folder",
        "export {run} --format hub --out {here}/m --preprocessing",
        ("--preprocessing",),
        absent="m",
    ),
    Case("licence of a file", EXPORT + " --licence mit", ("--licence", "leave it out"), absent="model.pt2"),
    Case(
        "odd licence", "export {run} --format hub --out {here}/m --licence a:b", ("--licence", "cc-by-4.0"), absent="m"
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_extra_names_the_pip_command(
    world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
):
    monkeypatch.setitem(sys.modules, package, None)
    said = refusal(capfd, world.words("export {run} --format onnx --out {here}/model.onnx"))
    assert f"the package {package}" in said
    assert "pip install 'tcm[export]'" in said
    assert contents(world.here) == {}


def test_an_existing_file_is_replaced_on_demand(world: World, capsys: pytest.CaptureFixture[str]):
    from tcm.cli.app import main

    file: Path = world.here / "model.pt2"
    file.write_text("old")
    assert main(world.words(EXPORT + " --overwrite --quiet")) == 0
    assert file.stat().st_size > 10_000
    assert "checked on 12 images of Clipart" in capsys.readouterr().out
