"""The wheel and the sdist: built, and installed in an environment of their own."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from support.documents import ROOT

FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md", "CITATION.cff", "constraints.txt")


def run(*words: str | Path, cwd: Path) -> str:
    """The output of a command that sees nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, cwd=cwd, env=kept, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and a wheel that was built from it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in FILES:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=source)
    return out


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel. Its other packages are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    paths = {"base": str(folder), "platbase": str(folder)}
    site, found = (Path(sysconfig.get_path(name, "venv", paths)) for name in ("purelib", "scripts"))
    # Packages of a folder that a .pth file names come after the own ones; .pth files there, as of an editable
    # installation of tcm, have no effect.
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    (wheel,) = built.glob("*.whl")
    options = ("--no-deps", "--no-index", "--no-compile", "--ignore-installed", "--quiet")
    run(sys.executable, "-m", "pip", "--python", folder, "install", *options, wheel, cwd=folder)
    return found


def test_every_file_of_the_package_is_in_both(built: Path):
    files = {file.relative_to(ROOT / "src") for file in (ROOT / "src" / "tcm").rglob("*") if file.is_file()}
    expected = {file.as_posix() for file in files if "__pycache__" not in file.parts}
    assert {"tcm/py.typed", "tcm/report/page.html.jinja", "tcm/report/style.css"} <= expected
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == expected
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in expected} <= names
    assert {*FILES} - {"MANIFEST.in"} <= names


def test_the_program_runs_from_the_wheel(programs: Path, tmp_path: Path):
    assert run(programs / "tcm", "--version", cwd=tmp_path).startswith("tcm 0.")
    assert "tcm fit" in run(programs / "tcm", "help", cwd=tmp_path)
    place = run(programs / "python", "-c", "import tcm; print(tcm.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(programs.parent)


def test_the_data_of_the_package_is_found(programs: Path, tmp_path: Path):
    code = """
from tcm.estimation.known_cases import combinations
from tcm.report.page import template
assert template("page.html.jinja").environment.globals["style"]
print(template("suite.html.jinja").name, len(combinations()) > 0)
"""
    assert run(programs / "python", "-c", code, cwd=tmp_path).split() == ["suite.html.jinja", "True"]
