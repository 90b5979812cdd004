"""Mistakes with the page."""

import socket
import sys

import pytest
from support.mistakes import Case, World, contents, draw_domain, refusal, require_refusal

from tcm.cli.app import main


def unfinished(world: World) -> None:
    (world.copy("half") / "model.safetensors").unlink()


def other_classes(world: World) -> None:
    draw_domain(world.here / "Art", ("cup", "hat"))
    draw_domain(world.here / "Clipart", ("cup", "hat"))
    folders = "--data.source-dir {here}/Art --data.target-dir {here}/Clipart"
    assert main(world.words(f"train erm {folders} {{small}} --out {{here}}/other --quiet")) == 0


CASES = (
    Case("no run", "app", ("there are no runs", "name at least one")),
    Case("a missing run", "app {here}/no --port 0", ("/no is not a run folder",)),
    Case("not a run", "app {data} --port 0", ("is not a run folder", "name the --out")),
    Case("an unfinished run", "app {here}/half --port 0", ("/half is not finished", "repeat its command"), unfinished),
    Case("mechanisms", "app {mechanisms} --port 0", ("holds no classifier",)),
    Case("a run twice", "app {run} {run} --port 0", ("is given twice", "name each run once")),
    Case(
        "runs of other data",
        "app {run} {here}/other --port 0",
        ("/other has other classes", "same data"),
        other_classes,
    ),
    Case("a port that is none", "app {run} --port 70000", ("--port is 70000", "give 0 to 65535")),
    Case("an address of no computer", "app {run} --host no.such.host.invalid --port 0", ("--host", "127.0.0.1")),
    Case("a short token", "app {run} --token abc --port 0", ("--token", "16 letters")),
    Case("no sample", "app {run} --sample 0 --port 0", ("--sample is 0", "give 1 or more")),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)


def test_an_occupied_port_is_one_line(world: World, capfd: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refusal(capfd, world.words(f"app {{run}} --port {port}"))
    assert f"--port {port} is in use" in said
    assert "--port 0" in said


@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "python_multipart"])
def test_a_missing_extra_names_the_pip_command(
    world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
):
    monkeypatch.setitem(sys.modules, package, None)
    said = refusal(capfd, world.words("app {run} --port 0"))
    assert f"the package {package}" in said
    assert "pip install 'tcm[app]'" in said
    assert contents(world.here) == {}
