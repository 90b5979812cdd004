import dataclasses
from pathlib import Path

import pytest
from support.averaging import register
from support.mistakes import MECHANISMS, World, draw_domain

from tcm.cli.app import main


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("bad-input")
    for place, name in enumerate(("Art", "Clipart")):
        draw_domain(root / "data" / name, first_seed=1000 * place)
    world = World(root / "data", root / "run", root / "cache", root, root / "mechanisms")
    assert main(world.words("train erm {folders} {small} --out {run} --quiet")) == 0
    assert main(world.words(MECHANISMS.replace("{here}/out", "{mechanisms}") + "{folders} --quiet")) == 0
    assert main(world.words("transport {mechanisms} --device cpu --quiet")) == 0
    return world


@pytest.fixture
def world(shared: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    register(monkeypatch)
    return dataclasses.replace(shared, here=tmp_path)
