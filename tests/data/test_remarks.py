"""What is doubtful about a task is said when its images are loaded, and only then."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tcm.data.task import DataConfig, load_task
from tcm.errors import InputError
from tcm.mechanisms.train import bank_config

MakeImages = Callable[..., Path]
NAMES = [f"{name}/{number}.png" for name in ("cup", "hat") for number in range(6)]


def warned(source: Path, target: Path, cache: Path) -> list[str]:
    """What is said about the two folders."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        load_task(DataConfig(source_dir=source, target_dir=target, size=16, cache=cache), quiet=True)
    return [str(one.message) for one in said]


@pytest.fixture
def source(tmp_path: Path, make_images: MakeImages) -> Path:
    return make_images(tmp_path / "photos", *NAMES, size=(20, 10))


@pytest.fixture
def target(tmp_path: Path, make_images: MakeImages) -> Path:
    return make_images(tmp_path / "drawings", *NAMES, size=(20, 10), seed=1)


def test_a_sound_task_is_loaded_without_a_word(source: Path, target: Path, tmp_path: Path):
    assert warned(source, target, tmp_path / "cache") == []


def test_one_folder_for_both_domains(source: Path, tmp_path: Path):
    said = warned(source, source, tmp_path / "cache")
    assert said == [
        "the source photos and the target photos are the same images; name two different domains, or the result says "
        "nothing about new images"
    ]
    copy = Path(shutil.copytree(source, tmp_path / "copy"))
    assert "the target copy are the same images" in warned(source, copy, tmp_path / "cache")[0]


def test_shared_images(source: Path, target: Path, tmp_path: Path):
    for number in (2, 3):
        shutil.copy(source / "cup" / f"{number}.png", target / "hat" / f"again{number}.png")
    (said,) = warned(source, target, tmp_path / "cache")
    assert said.startswith("the source photos and the target drawings share 2 images (cup/2.png is hat/again2.png)")
    assert "remove them from one" in said


def test_few_images_of_a_class(source: Path, target: Path, tmp_path: Path):
    for number in range(3):
        (source / "hat" / f"{number}.png").unlink()
    (said,) = warned(source, target, tmp_path / "cache")
    assert said == "the source photos has fewer than 4 images for 1 of its 2 classes: hat; add images of them"


def test_a_tiny_target(source: Path, tmp_path: Path, make_images: MakeImages):
    target = make_images(tmp_path / "drawings", *NAMES[:9], size=(20, 10), seed=1)
    (said,) = warned(source, target, tmp_path / "cache")
    assert said.startswith("the target drawings has 9 images for 2 classes; adaptation needs more")


def test_images_in_which_nothing_can_be_seen(source: Path, target: Path, tmp_path: Path, make_images: MakeImages):
    make_images(source, "hat/dot.png", size=(1, 1), seed=2)
    make_images(source, "hat/line.png", size=(50, 7), seed=3)
    (said,) = warned(source, target, tmp_path / "cache")
    assert said == "2 of the 14 images of photos have a side below 8 pixels (hat/dot.png has 1 x 1); remove them"


@pytest.mark.parametrize(
    ("size", "crop"), [(256, 224), (128, 112), (72, 60), (75, 64), (32, 28), (17, 12), (9, 8), (8, 8)]
)
def test_the_default_crop_suits_the_networks_of_stage_1(size: int, crop: int):
    config = DataConfig(source_dir=Path("a"), target_dir=Path("b"), size=size)
    assert config.sides == (size, crop)
    assert config.resolved().view.crop == crop
    if crop >= 32:
        bank_config("paper", config.is_small).require_usable(crop)


def test_a_size_that_no_memory_holds_is_refused():
    with pytest.raises(InputError, match=r"`data\.size` is 100000; give 4096 or less"):
        DataConfig(source_dir=Path("a"), target_dir=Path("b"), size=100_000).resolved()
