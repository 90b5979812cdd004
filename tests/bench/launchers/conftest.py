import threading
from collections.abc import Callable, Iterator

import pytest
from support.six_runs import SixRuns


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> SixRuns:
    """The suite in two local processes at once, which nothing happens to."""
    six = SixRuns(tmp_path_factory.mktemp("local") / "suite")
    code, said, complained = six.run("--jobs", "2")
    assert (code, complained) == (0, "")
    assert "tcm-release" in said
    return six


@pytest.fixture
def meanwhile() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Runs a function in a thread while the test runs a suite; an error in it fails the test."""
    threads: list[threading.Thread] = []
    errors: list[BaseException] = []

    def start(work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        threads.append(threading.Thread(target=guarded))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(120)
    assert errors == []
