"""Tiny runs on folders of noise, opened once for all tests of the server."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient
from support.mistakes import draw_domain
from support.serving import live_server

from tcm.app.api import build_app
from tcm.app.guard import Access, Guard
from tcm.app.runs import ServedRuns, open_runs
from tcm.cli.app import main

CLASSES = ("cup", "hat", "key")
LOCAL = Access(token=None, local=True)


class Places(NamedTuple):
    data: Path
    mechanisms: Path
    erm: Path
    tcm: Path


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Two finished runs on the same images, one of them with mechanisms."""
    root = tmp_path_factory.mktemp("app")
    for place, name in enumerate(("Art", "Clipart")):
        draw_domain(root / name, CLASSES, each=6, first_seed=1000 * place)
    folders = ["--data.source-dir", str(root / "Art"), "--data.target-dir", str(root / "Clipart")]
    sizes = ["--data.size", "32", "--data.crop", "32", "--steps", "2", "--batch", "4"]
    usual = [*folders, *sizes, "--device", "cpu", "-q"]
    small = ["--k", "2", "--bank.generator.width", "2", "--bank.critic.width", "2", "--bank.critic.halvings", "2"]
    mechanisms = root / "mechanisms"
    assert main(["mechanisms", *usual, *small, "--out", str(mechanisms)]) == 0
    assert main(["transport", str(mechanisms), "--device", "cpu", "-q"]) == 0
    assert main(["train", "erm", *usual, "--out", str(root / "erm")]) == 0
    more = ["--mechanisms", str(mechanisms), "--method.no-only-useful"]
    assert main(["train", "tcm", *usual, *more, "--out", str(root / "tcm")]) == 0
    return Places(root, mechanisms, root / "erm", root / "tcm")


@pytest.fixture(scope="session")
def served(places: Places) -> ServedRuns:
    return open_runs([places.erm, places.tcm], "cpu", quiet=True)


@pytest.fixture
def no_labels(places: Places) -> Iterator[None]:
    """The runs have no labels, before the test and after it."""
    yield
    for run in (places.erm, places.tcm):
        for file in [*run.glob("*labels*"), *run.glob("audit*")]:
            file.unlink()


@pytest.fixture
def client(served: ServedRuns, no_labels: None) -> Iterator[TestClient]:
    """The whole application in the same process."""
    with TestClient(Guard(build_app(served, sample=5), LOCAL), base_url="http://127.0.0.1") as opened:
        yield opened


@pytest.fixture
def live(served: ServedRuns, no_labels: None) -> Iterator[int]:
    """The port of the application behind a real socket."""
    with live_server(Guard(build_app(served, sample=5), LOCAL)) as port:
        yield port
