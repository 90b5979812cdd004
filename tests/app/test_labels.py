"""Labels: on disk at once, the random sample apart from all others, and honest in an audit."""

import csv
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tcm.app.labels import LabelFolder
from tcm.cli.app import main
from tcm.errors import InputError
from tcm.estimation.audit import NONE, SAMPLE, UNSURE, draw_sample, note_sample, read_audit, read_sample
from tcm.estimation.inputs import read_predictions


@pytest.fixture
def folder(places: Any, no_labels: None) -> LabelFolder:
    return LabelFolder(read_predictions(places.erm), 5)


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def put(client: TestClient, address: str, number: int, label: str | None) -> None:
    found = client.put(address, json={"number": number, "label": label})
    assert found.status_code == 200, found.text


def test_nothing_is_written_before_the_first_label(client: TestClient, places: Any):
    client.get("/audit")
    client.get("/target")
    assert not [*places.erm.glob("*labels*"), *places.erm.glob("audit*")]


def test_labels_of_the_sample_are_an_audit(client: TestClient, places: Any, capsys: pytest.CaptureFixture[str]):
    state = client.get("/audit").json()
    labels = ["cup", "hat", UNSURE, NONE]
    for number, label in zip(state["images"], labels, strict=False):
        put(client, "/audit", number, label)
    assert client.get("/audit").json()["labels"] == {
        str(number): label for number, label in zip(state["images"], labels, strict=False)
    }
    found = client.post("/audit").json()["models"]
    assert [one["model"] for one in found] == ["erm", "tcm"]
    file = Path(state["file"])
    for one, run in zip(found, (places.erm, places.tcm), strict=True):
        stored = read_audit(run)
        assert stored is not None
        assert (stored.sentence, stored.labelled, stored.unsure) == (one["sentence"], 3, 1)
        capsys.readouterr()
        assert main(["audit", str(run), "--labels", str(file)]) == 0  # the command takes the same file
        assert capsys.readouterr().out == f"{one['sentence']}\n"


def test_the_sample_is_the_one_that_the_command_draws(client: TestClient, places: Any):
    state = client.get("/audit").json()
    drawn = draw_sample(places.erm, 5, seed=0)
    assert state["sample"] == drawn.identity
    paths = read_predictions(places.erm).paths
    assert [paths[number] for number in state["images"]] == drawn.paths
    assert not {"predictions", "probability", "classes_predicted"} & state.keys()


def test_a_sample_that_was_drawn_before_is_taken_up(places: Any, no_labels: None):
    drawn = draw_sample(places.erm, 3, seed=7)
    note_sample(places.erm, drawn)
    assert LabelFolder(read_predictions(places.erm), 5).sample == drawn


def test_labels_by_doubt_never_count(client: TestClient, places: Any):
    state = client.get("/audit").json()
    for row in client.get("/target").json()["rows"]:  # all images, also those of the sample
        put(client, "/labels", row["number"], "cup")
    assert client.get("/audit").json()["labels"] == {}
    refused = client.post("/audit").json()["models"]
    assert all(one["accuracy"] is None and "label" in one["sentence"] for one in refused)
    assert read_audit(places.erm) is None
    put(client, "/audit", state["images"][0], "hat")
    result = client.post("/audit").json()["models"][0]
    assert "of 1 labelled" in result["sentence"]
    assert len(rows(places.erm / "doubt-labels.csv")) == 18
    assert not (places.erm / "doubt-labels.csv").samefile(state["file"])


def test_labels_by_doubt_are_shown_in_the_list(client: TestClient, places: Any):
    put(client, "/labels", 4, "key")
    put(client, "/labels", 2, "cup")
    put(client, "/labels", 4, "hat")
    shown = {row["number"]: row["label"] for row in client.get("/target").json()["rows"] if row["label"]}
    assert shown == {2: "cup", 4: "hat"}
    assert rows(places.erm / "doubt-labels.csv") == [
        {"path": "cup/2.jpg", "label": "cup"},
        {"path": "cup/4.jpg", "label": "hat"},
    ]
    put(client, "/labels", 4, None)
    put(client, "/labels", 2, None)
    assert not (places.erm / "doubt-labels.csv").exists()


def test_an_image_outside_the_sample_is_refused(client: TestClient):
    state = client.get("/audit").json()
    outside = next(number for number in range(18) if number not in state["images"])
    found = client.put("/audit", json={"number": outside, "label": "cup"})
    assert found.status_code == 422
    assert "/labels" in found.json()["detail"]


def test_a_first_label_may_be_unsure_and_can_be_taken_back(folder: LabelFolder):
    path = folder.sample.paths[0]
    assert folder.label_for_audit(path, UNSURE) == 1
    assert folder.audit_labels() == {path: UNSURE}
    assert folder.label_for_audit(path, None) == 0
    assert folder.audit_labels() == {}
    with pytest.raises(InputError, match="label some first"):
        folder.audit(folder.folder)


def test_two_servers_do_not_lose_each_others_labels(places: Any, folder: LabelFolder):
    other = LabelFolder(read_predictions(places.erm), 5)
    first, second = folder.sample.paths[:2]
    folder.label_for_audit(first, "cup")
    other.label_for_audit(second, "hat")
    folder.label_doubtful(first, "key")
    other.label_doubtful(second, "key")
    assert folder.audit_labels() == other.audit_labels() == {first: "cup", second: "hat"}
    assert len(folder.doubt_labels()) == 2
    assert read_sample(places.erm) == folder.sample


def test_a_file_of_other_data_is_kept(folder: LabelFolder):
    foreign = "path,label\nother.png,cup\n"
    folder.doubt_file.write_text(foreign)
    with pytest.raises(InputError, match="move the file away"):
        folder.label_doubtful(folder.sample.paths[0], "cup")
    assert folder.doubt_file.read_text() == foreign


def test_a_failed_write_loses_nothing(client: TestClient, places: Any, monkeypatch: pytest.MonkeyPatch):
    put(client, "/labels", 0, "cup")
    before = (places.erm / "doubt-labels.csv").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    found = client.put("/labels", json={"number": 1, "label": "hat"})
    assert found.status_code == 507
    assert "No space left" in found.json()["detail"]
    assert (places.erm / "doubt-labels.csv").read_bytes() == before
    assert not [*places.erm.glob(".*.tmp")]


def test_another_audit_is_not_overwritten(client: TestClient, places: Any):
    drawn = draw_sample(places.tcm, 4, seed=3)  # somebody labels another sample of the second run
    note_sample(places.tcm, drawn)
    state = client.get("/audit").json()
    put(client, "/audit", state["images"][0], "cup")
    first, second = client.post("/audit").json()["models"]
    assert first["accuracy"] is not None
    assert second["accuracy"] is None
    assert drawn.identity in second["sentence"]
    assert read_sample(places.tcm) == drawn
    assert (places.erm / SAMPLE).exists()
