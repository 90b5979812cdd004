import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.killed import train_and_be_killed
from support.mistakes import draw_domain

from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.classifier.trained import evaluate_run
from tcm.cli.app import main
from tcm.data.folders import read_plain_folders
from tcm.data.lists import read_lists
from tcm.data.store import ImageStore
from tcm.data.stream import Stream
from tcm.data.task import DataConfig, load_task, read_domains
from tcm.errors import InputError
from tcm.methods.erm import ERMConfig
from tcm.nn.backbone import BackboneConfig
from tcm.pipeline.folder import default_out
from tcm.training.run_folder import Run

pytestmark = pytest.mark.filterwarnings("ignore:the (source|target):UserWarning")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    draw_domain(tmp_path / "Art", ("cup", "hat", "key"), each=4)
    draw_domain(tmp_path / "Clip art", ("Cup", "hat", "pen"), each=2, first_seed=1000)
    draw_domain(tmp_path / "Real", ("cup", "hat"), each=3, first_seed=2000)
    return tmp_path


def settings(root: Path, source: str | tuple[str, ...] = ("Art", "Clip art"), **more: object) -> DataConfig:
    return DataConfig(root=root, source=source, target="Real", size=32, crop=32, cache=root / "cache", **more)  # pyright: ignore


def pool(root: Path, source: str | tuple[str, ...] = ("Art", "Clip art")) -> ImageStore:
    return load_task(settings(root, source), quiet=True).source


def test_a_pool_has_the_images_of_its_sources_one_after_the_other(root: Path):
    found, art, clip = pool(root), pool(root, "Art"), pool(root, "Clip art")
    assert (found.name, len(found)) == ("Art+Clip art", 18)
    assert [(source.name, source.images) for source in found.sources] == [("Art", 12), ("Clip art", 6)]
    assert torch.equal(found.images, torch.cat([art.images, clip.images]))
    assert found.hashes == [*art.hashes, *clip.hashes]
    assert found.paths[0] == "Art/cup/0.jpg"
    numbers = found.source_numbers
    assert numbers is not None
    assert numbers.tolist() == [0] * 12 + [1] * 6
    assert (art.sources, art.source_numbers) == ((), None)


def test_classes_are_matched_by_name_and_have_the_first_spelling(root: Path):
    found = pool(root)
    assert found.classes == ("cup", "hat", "key", "pen")
    names = [found.classes[label] for label in found.labels.tolist()]
    assert names == [name for name in ("cup", "hat", "key") for _ in range(4)] + ["cup"] * 2 + ["hat"] * 2 + ["pen"] * 2
    assert pool(root, ("Clip art", "Art")).classes == ("Cup", "hat", "key", "pen")


def test_a_warning_names_the_classes_that_a_source_lacks(root: Path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_domains(settings(root))
    said = [str(warning.message) for warning in caught]
    assert any("Clip art has no images of 1 of the 4 classes of the sources: key" in line for line in said)
    assert any("/Art has no images of 1 of the 4 classes of the sources: pen" in line for line in said)
    (root / "Art/key/0.jpg").rename(root / "Art/cup/9.jpg")
    for number in (1, 2):
        (root / f"Art/key/{number}.jpg").unlink()
    with pytest.warns(UserWarning, match=rf"the source {root}/Art \+ {root}/Clip art has only one image .*: key"):
        read_domains(settings(root))


def test_a_folder_is_packed_once_for_all_its_pools(root: Path):
    def stores() -> set[str]:
        return {file.parent.name for file in (root / "cache").glob("*/index.json")}

    one = pool(root)
    packed = stores()
    assert len(packed) == 4  # Art, Clip art, Real and the pool
    assert pool(root).fingerprint == one.fingerprint
    pool(root, "Art")
    assert stores() == packed
    draw_domain(root / "Sketch", ("cup", "hat"), first_seed=3000)
    assert pool(root, ("Art", "Sketch")).fingerprint != one.fingerprint
    assert len(stores() - packed) == 2  # Sketch and the other pool


def test_a_pool_follows_its_folders(root: Path):
    before = pool(root).fingerprint
    draw_domain(root / "Clip art", ("hat",), each=1, first_seed=7000)
    after = pool(root)
    assert (len(after), after.fingerprint == before) == (18, False)
    (after.folder / "images.npy").write_bytes(b"damaged")
    assert torch.equal(pool(root).images, torch.cat([pool(root, name).images for name in ("Art", "Clip art")]))


def test_sources_are_a_tuple_or_a_text_with_commas(root: Path):
    assert settings(root, "Art, Clip art").resolved().source == ("Art", "Clip art")
    assert settings(root, ("Art",)).resolved().source == "Art"
    folders = DataConfig(source_dir=Path(f"{root}/Art,{root}/Clip art"), target_dir=root / "Real").resolved()
    assert folders.source_dir == (root / "Art", root / "Clip art")
    assert default_out(folders) == Path("runs/Art+Clip art-to-Real")
    (root / "Art").rename(root / "Art,old")
    assert settings(root, "Art,old").resolved().source == "Art,old"
    assert DataConfig(source_dir=root / "Art,old", target_dir=root).resolved().source_dir == root / "Art,old"


def test_folders_of_the_same_name_are_told_apart_by_their_parents(tmp_path: Path):
    for place, name in enumerate(("day", "night")):
        draw_domain(tmp_path / name / "train", first_seed=1000 * place)
    target = draw_domain(tmp_path / "target", first_seed=5000)
    source, _ = read_plain_folders((tmp_path / "day/train", tmp_path / "night/train"), target)
    assert [part.name for part in source.parts] == ["day/train", "night/train"]
    assert source.name == "day/train+night/train"
    assert all((source.root / path).is_file() for path in source.paths)


def test_lists_are_pooled_by_the_numbers_of_their_classes(root: Path):
    texts = {"a": "Art/cup/0.jpg 0\nArt/hat/0.jpg 01\n", "b": "Clip art/pen/0.jpg 2\nClip art/hat/0.jpg 1\n"}
    for name, text in {**texts, "t": "Real/cup/0.jpg 2\n"}.items():
        (root / f"{name}List.txt").write_text(text)
    source, target = read_lists((root / "aList.txt", root / "bList.txt"), root / "tList.txt")
    assert (source.name, source.classes, source.labels) == ("a+b", ("0", "1", "2"), (0, 1, 1, 2))
    assert target.labels == (2,)
    assert all((source.root / path).is_file() for path in source.paths)


def test_every_image_of_the_pool_is_in_an_epoch_once_and_batches_have_its_domain(root: Path):
    task = load_task(settings(root), quiet=True)
    device, view = torch.device("cpu"), settings(root).view
    stream = Stream(*task, batch=3, seed=1, view=view, device=device)
    seen: list[int] = []
    for step in range(6):
        batch, places = stream.batch(step), stream.plan(step)[0].indices
        assert batch.source_domains is not None
        assert batch.source_domains.tolist() == [int(place >= 12) for place in places]
        assert torch.equal(batch.labels, task.source.labels[places])
        seen += places.tolist()
    assert sorted(seen) == list(range(18))
    streamed = Stream(*task, batch=3, seed=1, view=view, device=device, resident=False)
    for one, other in zip(stream.batch(4), streamed.batch(4), strict=True):
        assert one is other is None or torch.equal(one, other)  # pyright: ignore
    alone = Stream(task.target, task.target, batch=3, seed=1, view=view, device=device)
    assert alone.batch(0).source_domains is None


def config(root: Path) -> TrainConfig[ERMConfig]:
    folders = {"source_dir": (root / "Art", root / "Clip art"), "target_dir": root / "Real"}
    return TrainConfig(
        method=ERMConfig(),
        data=DataConfig(**folders, size=32, crop=32, cache=root / "cache"),  # pyright: ignore
        steps=6,
        batch=4,
        evaluate_every=3,
        save_every=2,
        held_out=0.25,
        device="cpu",
        backbone=BackboneConfig(name="small"),
    )


def test_a_killed_run_continues_to_the_same_model_and_reports_every_source(root: Path):
    assert train_classifier("erm", config(root), root / "whole", quiet=True)
    train_and_be_killed("erm", config(root), root / "killed", at=5)
    assert train_classifier("erm", config(root), root / "killed", quiet=True)
    models = [(root / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]
    written = json.loads((root / "whole/evaluation.json").read_text())
    source = written["source"]
    assert [(one["name"], one["images"]) for one in source["domains"]] == [("Art", 12), ("Clip art", 6)]
    mean = sum(one["accuracy"] * one["images"] for one in source["domains"]) / 18
    assert mean == pytest.approx(source["accuracy"])
    assert sum(one["held_out"] for one in source["domains"]) == source["held_out"] > 0
    row = Run(root / "whole").metrics()[-1]
    assert [row[f"source/{one['name']}/accuracy"] for one in source["domains"]] == [
        one["accuracy"] for one in source["domains"]
    ]
    assert evaluate_run(root / "whole", "cpu", quiet=True)["source"]["domains"] == source["domains"]


def test_names_with_brackets_are_printed_whole(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    (root / "Art").rename(root / "[red] Art")
    folders = (root / "[red] Art", root / "Clip art")
    changed = replace(config(root), data=replace(config(root).data, source_dir=folders))
    assert train_classifier("erm", changed, root / "run", quiet=True)
    assert main(["evaluate", str(root / "run"), "-q"]) == 0
    assert capsys.readouterr().out.count("[red] Art") == 2  # the title and the column


def test_a_pool_with_other_images_is_another_run(root: Path):
    train_and_be_killed("erm", config(root), root / "run", at=3)
    draw_domain(root / "Clip art", ("hat",), each=1, first_seed=7000)
    with pytest.raises(InputError, match="images"):
        train_classifier("erm", config(root), root / "run", quiet=True)
