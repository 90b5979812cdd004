import io
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest
from sphinx.cmd.build import build_main
from support.documents import DOCS


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built once as `make docs` does: a warning is an error."""
    out, said = tmp_path_factory.mktemp("site"), io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = build_main(["-E", "-W", "--keep-going", "--quiet", str(DOCS), str(out)])
    assert (code, said.getvalue()) == (0, "")
    return out


@pytest.fixture(scope="session")
def source_links() -> Iterator[ModuleType]:
    """The extension that links code in pages to its line."""
    sys.path.insert(0, str(DOCS / "_ext"))
    import source_links  # pyright: ignore[reportMissingImports]

    yield source_links
    sys.path.remove(str(DOCS / "_ext"))
