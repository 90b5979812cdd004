"""The examples run as they stand, with fewer steps."""

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tcm.methods import METHODS

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAYS = {  # what each one must print
    "compare_methods": ("erm: ", "dan: ", "of 899 target images"),
    "fit_two_folders": ("Classifier('tcm', 10 classes", "of the target images"),
    "own_method": ("coral: ", "of the target images"),
    "own_training_loop": ("step 0: label loss ", "domain loss ", "of the target images"),
    "predict_images": ("Classifier('dan'", "files: ", "PIL: ", "numpy: ", "torch: ", "(3, 256)"),
    "proxy_function": ("h_y(x, x_hat), without z: 9",),  # more than 90 %
}
STEPS = {"proxy_function": "200"}


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


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_example_runs(file: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    options = ["--steps", STEPS.get(file.stem, "3")]
    if "out: Path" in file.read_text():
        options += ["--out", str(out)]
    monkeypatch.setattr("sys.argv", [str(file), *options])
    runpy.run_path(str(file), run_name="__main__")
    said = capsys.readouterr().out
    assert all(part in said for part in SAYS[file.stem]), said


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_example_says_how_to_run_it(file: Path):
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    assert f"python examples/{file.name}" in text
