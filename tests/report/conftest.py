from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import write_run


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`write_run` into a folder of the given name."""
    return lambda name, **settings: write_run(tmp_path / name, **settings)
