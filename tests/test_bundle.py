"""benchmarks/bundle.py: the parts that are brought to a machine without a network, and the queue there."""

import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "bundle.py"


def bundle(script: Path, *words: object, cwd: Path | None = None) -> str:
    command = [sys.executable, str(script), *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit with a program that prints a word, unpacked from parts of at most one megabyte."""
    folder = tmp_path_factory.mktemp("bundle")
    project, kit = folder / "project", folder / "kit"
    (project / "src" / "tcm").mkdir(parents=True)
    (project / "src" / "tcm" / "__init__.py").touch()
    (project / "src" / "tcm" / "__main__.py").write_text("import sys; print('trained', *sys.argv[1:])")
    (project / "benchmarks").mkdir()
    shutil.copy(SCRIPT, project / "benchmarks")
    (folder / "Art").mkdir()
    (folder / "Art" / "a.jpg").write_bytes(bytes(600_000))
    (folder / "weights").write_bytes(bytes(700_000))
    named = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run(["git", *words], cwd=project, check=True, env={**os.environ, **named})
    options = ["--to", folder / "parts", "--limit", 1, "--files", folder / "Art", folder / "weights", "--packages"]
    bundle(SCRIPT, "make", *options, cwd=project)
    parts = sorted((folder / "parts").iterdir())
    assert [part.name for part in parts] == ["1", "2"]
    for part in parts:
        assert sum(file.stat().st_size for file in part.iterdir()) <= 1_000_000
        bundle(SCRIPT, "unpack", part, "--to", kit)
    return kit


def test_the_kit_has_all_files(kit: Path):
    assert (kit / "office-home" / "Art" / "a.jpg").stat().st_size == 600_000
    assert (kit / "weights").stat().st_size == 700_000
    assert len((kit / "commit").read_text()) == 12


def test_the_queue_runs_commands_and_its_results_come_back(kit: Path, tmp_path: Path):
    here = kit / "benchmarks" / "bundle.py"
    (tmp_path / "commands").write_text(
        "mkdir -p runs/a && tcm train > runs/a/metrics.jsonl && touch runs/a/state.pt\nfalse\nsleep 100\n"
    )
    bundle(here, "start", tmp_path / "commands", "--jobs", 3)
    printed, until = "", time.monotonic() + 60
    while not ("000 exit code 0" in printed and "001 exit code 1" in printed):
        assert time.monotonic() < until, printed
        printed = bundle(here, "wait", "--seconds", 1, "--to", tmp_path / "found.tgz")
    assert "the queue is running" in printed
    with tarfile.open(tmp_path / "found.tgz") as archive:
        found = archive.extractfile("runs/a/metrics.jsonl")
        assert found is not None
        assert found.read() == b"trained train\n"
        assert "runs/a/state.pt" not in archive.getnames()
    bundle(here, "stop")
    assert "the queue has ended" in bundle(here, "wait", "--to", tmp_path / "found.tgz")
