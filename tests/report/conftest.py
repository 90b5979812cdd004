import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from fake_runs import write_run
from tiny_suite import OPTIONS

from tcm.cli import main


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`write_run` into a folder of the given name."""
    return lambda name, **settings: write_run(tmp_path / name, **settings)


@pytest.fixture(scope="session")
def few_points() -> Iterator[None]:
    """t-SNE of so few images takes no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tcm.embedding.POINTS", 40)
        yield


@pytest.fixture(scope="session")
def suite_page(alone: Path, few_points: None) -> Path:
    """The page of a whole suite, written by the command."""
    file, said = alone / "runs/digits/erm-s0/evaluation.npz", io.StringIO()
    before = file.read_bytes()
    with np.load(file) as stored:
        arrays = {**stored}
    # Four steps teach the methods little: give one right answers that the other has not.
    arrays["probabilities"] = np.eye(10, dtype=np.float32)[arrays["labels"]]
    np.savez(file, allow_pickle=False, **arrays)
    with redirect_stdout(said):
        assert main(["bench", *OPTIONS, "--out", str(alone)]) == 0
    file.write_bytes(before)
    page = alone / "report" / "index.html"
    assert said.getvalue().splitlines()[-2:] == [f"The results: {alone / 'results.csv'}", f"The report: {page}"]
    return page
