"""The examples run as they stand, with fewer steps."""

import ast
import functools
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.exportable import draw_task, write_run

import tcm
from tcm.export.export import Format, export_classifier
from tcm.methods import METHODS

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAYS = {  # what each one must print
    "compare_methods": ("erm: ", "dan: ", "of 899 target images"),
    "lightning_module": ("cdan-e: ", "of the target images"),
    "plain_pytorch": ("of the target images",),
    "fit_two_folders": ("Classifier('tcm', 10 classes", "of the target images"),
    "own_method": ("coral: ", "of the target images"),
    "own_training_loop": ("step 0: label loss ", "domain loss ", "of the target images"),
    "predict_images": ("Classifier('dan'", "files: ", "PIL: ", "numpy: ", "torch: ", "(3, 256)"),
    "proxy_function": ("h_y(x, x_hat), without z: 9",),  # more than 90 %
}
STEPS = {"proxy_function": "200"}
NEEDS = {"lightning_module": "lightning"}  # packages that only an example needs
NOTEBOOK = EXAMPLES[0].parent / "walkthrough.py"
# Programs for exported files, which must run where these packages are not installed.
WITHOUT: dict[str, tuple[Format, bool, list[str]]] = {
    "onnx_predict": ("onnx", False, ["tcm", "torch"]),
    "pt2_predict": ("pt2", True, ["tcm"]),
}
# Without PyTorch, Pillow resizes, which differs by a few of 255 levels from what the library does.
CLOSE = {"onnx_predict": 2e-3, "pt2_predict": 2e-4}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All examples share one folder, so that each run is trained once."""
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(autouse=True)
def same_methods() -> Iterator[None]:
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


PROGRAMS = [file for file in EXAMPLES if file.stem not in WITHOUT and file != NOTEBOOK]


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.stem)
def test_the_example_runs(file: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    if file.stem in NEEDS:
        pytest.importorskip(NEEDS[file.stem], reason=f"only {file.name} needs it")
    options = ["--steps", STEPS.get(file.stem, "3")]
    if "out: Path" in file.read_text():
        options += ["--out", str(out)]
    monkeypatch.setattr("sys.argv", [str(file), *options])
    runpy.run_path(str(file), run_name="__main__")
    said = capsys.readouterr().out
    assert all(part in said for part in SAYS[file.stem]), said


def test_the_notebook_runs_cell_by_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tcm, "fit", functools.partial(tcm.fit, method={"only_useful": False}))  # which takes seconds
    text = NOTEBOOK.read_text()
    cells = [cell for cell in text.split("# %%") if not cell.startswith(" [markdown]")]
    assert len(cells) == text.count("# %%\n") + 1  # the first is empty
    names: dict[str, object] = {}
    for cell in cells:
        shorter = re.sub(r"^(STEPS|K) = \d+", r"\1 = 2", cell, flags=re.MULTILINE)
        exec(compile(shorter, str(NOTEBOOK), "exec"), names)
    assert names["STEPS"] == names["K"] == 2
    said = capsys.readouterr().out
    expected = ("erm: ", "mcc: ", "torch.Size([6, 10])", "tcm on the features of erm: ", "chosen by tcm.fit: ")
    assert all(part in said for part in expected), said
    pictures = {file.name for file in (tmp_path / "runs" / "walkthrough").glob("*.png")}
    assert pictures == {"domains.png", "explained.png", "counterfactuals.png"}


@pytest.mark.parametrize("name", WITHOUT)
def test_an_exported_file_is_used_without_the_library(name: str, tmp_path: Path):
    format, preprocessing, missing = WITHOUT[name]
    data = draw_task(tmp_path / "data", 36, 32)
    model = write_run(tmp_path / "run", "dann", "small", data)
    file = tmp_path / f"model.{format}"
    export_classifier(model, file, format, preprocessing=preprocessing, quiet=True)
    images = sorted((tmp_path / "data" / "Clipart").rglob("*.jpg"))
    blocked = "".join(f"sys.modules[{package!r}] = None; " for package in missing)
    code = f"import runpy, sys; {blocked}sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [sys.executable, "-c", code, str(EXAMPLES[0].parent / f"{name}.py"), str(file), *map(str, images)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    classifier = tcm.load(model, device="cpu")
    expected = zip(images, classifier.predict(images), classifier.predict_proba(images).max(axis=1), strict=True)
    for line, (path, guess, confidence) in zip(said.splitlines(), expected, strict=True):
        start, _, shown = line.rpartition("(")
        assert start == f"{path}: {guess} "
        assert float(shown.rstrip(")")) == pytest.approx(confidence, abs=CLOSE[name])


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_example_says_how_to_run_it(file: Path):
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    assert f"python examples/{file.name}" in text
