"""The JSON API: the same answers as the library, for uploads and for target images."""

import base64
import io
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from starlette.testclient import TestClient

import tcm
from tcm.analysis.grad_cam import activation_maps
from tcm.app.api import STATIC, build_app
from tcm.app.explain import STRONGEST
from tcm.app.runs import ServedRuns, open_runs
from tcm.classifier.evaluate import centre_crop_batches
from tcm.estimation.inputs import read_predictions


def pixels(uri: str) -> np.ndarray:
    """The pixels of a data URI."""
    head, _, data = uri.partition(",")
    assert re.fullmatch("data:image/(png|jpeg);base64", head)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def explained(client: TestClient, file: Path) -> dict[str, Any]:
    """What the server says of a file, when the features of the source are computed."""
    for _ in range(200):
        found = client.post("/explain", files={"image": (file.name, file.read_bytes())})
        assert found.status_code == 200, found.text
        if found.json()["source_ready"] == 1:
            return found.json()
        time.sleep(0.05)
    raise AssertionError("the features of the source are not computed")


def test_the_server_says_what_it_has(client: TestClient):
    assert client.get("/health").json() == {"status": "ok"}
    found = client.get("/info").json()
    assert [model["title"] for model in found["models"]] == ["erm", "tcm"]
    assert found["classes"] == ["cup", "hat", "key"]
    assert (found["source"], found["target"], found["images"]) == ("Art", "Clipart", 18)
    assert found["mechanisms"] == 2
    assert found["notes"] == []


def test_predictions_are_those_of_the_library(client: TestClient, places: Any):
    files = sorted((places.data / "Clipart").rglob("*.jpg"))[:3]
    sent = [("images", (file.name, file.read_bytes())) for file in files]
    found = client.post("/predict?top=3", files=sent).json()["images"]
    assert [one["name"] for one in found] == [file.name for file in files]
    for place, run in enumerate((places.erm, places.tcm)):
        model = tcm.load(run, device="cpu")
        for one, row in zip(found, model.predict_proba(files), strict=True):
            given = {each["name"]: each["probability"] for each in one["predictions"][place]["classes"]}
            assert [given[name] for name in model.classes] == pytest.approx(row.tolist(), abs=1e-5)
            assert list(given.values()) == sorted(given.values(), reverse=True)


def test_an_image_is_explained(client: TestClient, places: Any):
    file = places.data / "Clipart" / "hat" / "0.jpg"
    found = explained(client, file)
    assert found["name"] == "0.jpg"
    assert pixels(found["picture"]).shape == (32, 32, 3)
    assert [model["model"] for model in found["models"]] == ["erm", "tcm"]
    for model in found["models"]:
        assert len(model["nearest"]) == 6
        similarities = [near["similarity"] for near in model["nearest"]]
        assert similarities == sorted(similarities, reverse=True)
        assert all(near["path"].startswith(f"{near['label']}/") for near in model["nearest"])


def test_the_map_shows_what_grad_cam_finds(client: TestClient, served: ServedRuns):
    assert served.task is not None
    (images,) = centre_crop_batches(served.task.target.images[:8], 32, torch.device("cpu"))
    for place, model in enumerate(served.models):
        # One image at a time, as the page does: in a batch rounding is another, and the maps of these runs are tiny.
        found = []
        for stored, image in zip(served.task.target.images[:8].split(1), images.split(1), strict=True):
            guess = model.answer(stored).probabilities.argmax(dim=1)
            found.append(activation_maps(model.trained.method, image, guess)[0].sum(dim=0))
        maps = torch.cat(found)
        shown = [client.get(f"/target/{number}").json()["models"][place]["heat"] for number in range(8)]
        assert [heat is not None for heat in shown] == (maps.amax(dim=(1, 2)) > 0).tolist()
        for heat, expected in zip(shown, maps, strict=True):
            if heat is not None:
                opacity = pixels(heat)[:, :, 3].astype(float)
                large = F.interpolate(expected.clip(min=0)[None, None], opacity.shape, mode="bilinear")[0, 0]
                wanted = 255 * STRONGEST * (large / expected.max()).numpy()
                assert np.abs(opacity - wanted).max() <= 2, "levels of 255"


def test_counterfactuals_are_those_on_disk_with_the_predictions_on_them(client: TestClient, places: Any):
    found = explained(client, places.data / "Clipart" / "cup" / "0.jpg")  # the first target image
    stored = np.load(places.mechanisms / "transported" / "target" / "images.npy")[0]
    assert [one["mechanism"] for one in found["counterfactuals"]] == [1, 2]
    assert sum(one["winner"] for one in found["counterfactuals"]) == 1
    for one, made in zip(found["counterfactuals"], stored, strict=True):
        assert np.abs(pixels(one["picture"]).astype(int) - made).max() <= 1
        for place, run in enumerate((places.erm, places.tcm)):
            row = tcm.load(run, device="cpu").predict_proba(made)[0]
            best = one["predictions"][place]["classes"][0]
            assert best["probability"] == pytest.approx(float(row.max()), abs=0.02)
    alone = found["models"][1]["classes"][0]["probability"]
    values = [one["predictions"][1]["classes"][0] for one in found["counterfactuals"]]
    mean = found["models"][1]["average"][0]
    if all(one["name"] == mean["name"] for one in [found["models"][1]["classes"][0], *values]):
        assert mean["probability"] == pytest.approx((alone + sum(one["probability"] for one in values)) / 3, abs=1e-4)


def test_a_source_image_is_its_own_nearest_neighbour(client: TestClient, places: Any):
    found = explained(client, places.data / "Art" / "key" / "3.jpg")
    near = found["models"][0]["nearest"][0]
    assert (near["path"], near["label"]) == ("key/3.jpg", "key")
    assert near["similarity"] == pytest.approx(1, abs=1e-4)


def test_the_target_is_sorted_by_the_doubt_of_a_model(client: TestClient, places: Any):
    for place, run in enumerate((places.erm, places.tcm)):
        stored = read_predictions(run)
        rows = client.get(f"/target?model={place}&count=200").json()["rows"]
        assert [row["number"] for row in rows] == np.argsort(stored.target.max(axis=1), kind="stable").tolist()
        for row in rows:
            best = row["predictions"][place]
            assert best["name"] == stored.classes[stored.predicted[row["number"]]]
            assert best["probability"] == pytest.approx(stored.target[row["number"]].max())
            assert row["differ"] == (row["predictions"][0]["name"] != row["predictions"][1]["name"])
    part = client.get("/target?order=files&start=4&count=2").json()
    assert [row["number"] for row in part["rows"]] == [4, 5]
    assert part["total"] == 18


def test_a_target_image_is_explained_as_its_file_is(client: TestClient, places: Any):
    uploaded = explained(client, places.data / "Clipart" / "cup" / "2.jpg")
    found = client.get("/target/2").json()
    assert found["name"] == "cup/2.jpg"
    assert {**found, "name": ""} == {**uploaded, "name": ""}
    picture = client.get("/target/2/image")
    assert picture.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(picture.content)).size == (32, 32)


def test_the_description_fits_the_server(client: TestClient):
    found = client.get("/openapi.json").json()
    assert {"/predict", "/explain", "/health", "/info", "/target", "/labels", "/audit"} <= found["paths"].keys()
    used = set(re.findall(r"#/components/schemas/(\w+)", str(found)))
    assert used <= found["components"]["schemas"].keys()
    for methods in found["paths"].values():
        assert all(operation["description"] for operation in methods.values())


def test_nothing_on_the_pages_leads_to_another_site():
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|\burl\(|@import|//cdn|<script>|\son\w+=|style=", text), file
        assert "eval(" not in text
        assert "innerHTML" not in text


def test_runs_whose_images_are_gone_take_uploads(places: Any, tmp_path: Path):
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "model.safetensors").write_bytes((places.tcm / "model.safetensors").read_bytes())
    runs = open_runs([tmp_path / "moved"], "cpu", quiet=True)
    with TestClient(build_app(runs, sample=5)) as client:
        found = client.get("/info").json()
        assert (found["source"], found["images"], found["mechanisms"]) == (None, 0, 0)
        assert "images" in found["notes"][0]
        data = (places.data / "Clipart" / "cup" / "0.jpg").read_bytes()
        explained = client.post("/explain", files={"image": ("x.jpg", data)}).json()
        assert explained["counterfactuals"] == []
        assert explained["models"][0]["nearest"] is None
        assert client.get("/target").status_code == 404


def test_one_run_is_enough(places: Any):
    with TestClient(build_app(open_runs([places.erm], "cpu", quiet=True), sample=5)) as client:
        assert client.get("/info").json()["mechanisms"] == 0
        assert client.get("/target/0").json()["counterfactuals"] == []


def test_the_features_of_the_source_wait_for_no_request(served: ServedRuns):
    from tcm.app.explain import Explainer

    explainer = Explainer(served)
    assert explainer.source is not None
    assert served.task is not None
    image = served.task.target.images[0].numpy()
    assert explainer.explain(image, "x").models[0].nearest is None  # not computed yet, and answered all the same
    explainer.source.start()
    assert explainer.source.wait(60)
    assert explainer.explain(image, "x").models[1].nearest
    explainer.close()
