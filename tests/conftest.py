import os
from pathlib import Path

import pytest
from tiny_suite import ended, suite

from tcm.data.task import DataConfig, Task, load_task

pytest.register_assert_rewrite("mistakes")  # its asserts say what they found, as those of tests do


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
