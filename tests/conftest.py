import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.fake_runs import write_run
from support.tiny_suite import OPTIONS, ended, suite

from tcm.cli.app import main
from tcm.data.task import DataConfig, Task, load_task

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.register_assert_rewrite("support.mistakes")  # its asserts say what they found, as those of tests do

# Files whose tests run in one process, because they share what takes long to make.
TOGETHER = {
    "suite": (
        "tests/bench/test_runner.py",
        "tests/bench/test_report.py",
        "tests/bench/test_forecast.py",
        "tests/report/test_page_in_browser.py",
    ),
    "digit reader": (
        "tests/mechanisms/test_digit_reader.py",
        "tests/mechanisms/test_judgement.py",
        "tests/mechanisms/test_quality.py",
        "tests/mechanisms/test_train.py",
    ),
    "app": (
        "tests/app/test_api.py",
        "tests/app/test_hostile_requests.py",
        "tests/app/test_labels.py",
        "tests/app/test_page_in_browser.py",
        "tests/app/test_server.py",
    ),
    "clusters": (
        "tests/bench/launchers/test_local.py",
        "tests/bench/launchers/test_ray_cluster.py",
        "tests/bench/launchers/test_slurm.py",
    ),
    "site": ("tests/docs/test_site.py", "tests/docs/test_language.py"),
}
# Groups and files that take longest. They start first: at the end, a core would wait while another works on them.
LONGEST = (
    "suite",
    "clusters",
    "tests/test_pipeline.py",
    "digit reader",
    "tests/bench/test_paper_suites.py",
    "tests/training/test_interruption.py",
    "tests/test_end_to_end.py",
    "tests/mechanisms/test_transport.py",
    "tests/classifier/test_train.py",
    "tests/test_platforms.py",
    "app",
    "site",
)


def group_of(test: str) -> str:
    """The group of a test by its node ID: that of its file, or the file itself."""
    file = test.split("::")[0]
    return next((group for group, files in TOGETHER.items() if file in files), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Sends the tests of a group to one process."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest groups first, and skips tests of GPUs where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no GPU"))
    order = {group: place for place, group in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(group_of(item.nodeid), len(order)))


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests keep their packed images to themselves; child processes inherit the setting."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def digits(cache: Path) -> Task:
    return load_task(DataConfig(benchmark="digits").resolved(), quiet=True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Office-Home and ImageNet weights, where they lie beside the checkout."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no shared data beside the checkout")
    return folder


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite that nothing happened to."""
    out = tmp_path_factory.mktemp("suites") / "alone"
    code, said, complained = ended(suite(out))
    assert (code, complained) == (0, "")
    assert "tcm" in said
    assert "The results" not in said  # quiet: the table alone
    return out


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`write_run` into a folder of the given name."""
    return lambda name, **settings: write_run(tmp_path / name, **settings)


@pytest.fixture(scope="session")
def few_points() -> Iterator[None]:
    """t-SNE of so few images takes no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tcm.analysis.embedding.POINTS", 40)
        yield


@pytest.fixture(scope="session")
def suite_page(alone: Path, few_points: None) -> Path:
    """The page of a whole suite, written by the command."""
    file, said = alone / "runs/digits/erm-s0/evaluation.npz", io.StringIO()
    before = file.read_bytes()
    with np.load(file) as stored:
        arrays = {**stored}
    # Four steps teach the methods little: give one right answers that the other has not.
    guesses = (arrays["labels"] + (np.arange(len(arrays["labels"])) < 200)) % 10  # the first are wrong
    arrays["probabilities"] = np.eye(10, dtype=np.float32)[guesses]
    np.savez(file, allow_pickle=False, **arrays)
    with redirect_stdout(said):
        assert main(["bench", *OPTIONS, "--out", str(alone)]) == 0
    file.write_bytes(before)
    page = alone / "report" / "index.html"
    assert said.getvalue().splitlines()[-2:] == [f"The results: {alone / 'results.csv'}", f"The report: {page}"]
    return page


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium; tests that open pages are skipped where there is none."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
