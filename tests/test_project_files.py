"""Files around the code, which other programs read: versions, the Docker file, the workflow, the forms of issues."""

import re
import shlex
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from support.documents import ROOT

import tcm
from tcm.cli.app import main
from tcm.cli.yaml_settings import read_settings

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKER = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
FORMS = sorted(file for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if file.stem != "config")


def instructions(name: str) -> list[str]:
    """The arguments of an instruction of the Docker file, in each place."""
    return re.findall(rf"^{name} +(.+)$", DOCKER, flags=re.MULTILINE)


def test_every_extra_has_exact_versions():
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    extras = PROJECT["project"]["optional-dependencies"]
    # Trackers other than TensorBoard are not among the packages of the tests.
    wanted = {Requirement(line).name.lower() for name, lines in extras.items() if name != "track" for line in lines}
    assert wanted - {"tcm"} <= {name.replace("_", "-") for name in pinned}


def test_the_image_copies_files_that_exist_and_that_are_sent():
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [name for words in map(str.split, instructions("COPY")) if "--from" not in words[0] for name in words[:-1]]
    assert "src" in copied
    assert [name for name in copied if not (ROOT / name).exists() or f"!{name}" not in sent] == []
    from_stages = [words.split()[0] for words in instructions("COPY") if words.startswith("--from")]
    stages = re.findall(r"^FROM \S+ AS (\w+)$", DOCKER, flags=re.MULTILINE)
    assert [stage.removeprefix("--from=") for stage in from_stages] == ["wheel", "environment"] == stages


def test_the_image_runs_the_program_as_a_user(capsys: pytest.CaptureFixture[str]):
    entry, words = (shlex.split(instructions(name)[-1].strip("[]").replace(",", " ")) for name in ("ENTRYPOINT", "CMD"))
    assert entry[0] in PROJECT["project"]["scripts"]
    assert main(words) == 0
    assert "tcm fit" in capsys.readouterr().out
    assert instructions("USER") == ["tcm"]
    assert "useradd --create-home tcm" in DOCKER
    assert instructions("ARG")[:2] == ["PYTHON=3.12", "VARIANT=cpu"]


def test_the_workflow_tests_three_systems_and_three_versions():
    workflow = read_settings(ROOT / ".github" / "workflows" / "ci.yml")
    assert {"push", "pull_request"} <= workflow["on"].keys()
    jobs = workflow["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert [name.split("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    assert matrix["python"] == ["3.11", "3.12", "3.13"]
    steps: list[dict[str, Any]] = [step for job in jobs.values() for step in job["steps"]]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    commands = "\n".join(step.get("run", "") for step in steps)
    for command in ("ruff check .", "ruff format --check .", "pyright", "-m pytest", "docker build"):
        assert command in commands
    assert (ROOT / workflow["env"]["PIP_CONSTRAINT"]).exists()


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.stem)
def test_the_forms_of_issues_ask_something(file: Any):
    form = read_settings(file)
    assert {"name", "description", "body"} <= form.keys()
    assert {field["type"] for field in form["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    assert len({field["id"] for field in form["body"]}) == len(form["body"])
    assert all(field["attributes"]["label"] for field in form["body"])
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_there_are_three_forms():
    assert [file.stem for file in FORMS] == ["bug", "feature", "question"]


def test_the_citation_is_complete_and_of_this_version():
    citation = read_settings(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == tcm.__version__ == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]
    for reference in citation["references"]:
        assert {"type", "title", "authors", "year"} <= reference.keys()
