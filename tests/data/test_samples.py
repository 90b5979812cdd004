import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tcm.data.folders import read_domain
from tcm.data.samples import VIEWS, read_rows, samples_of, strength_of, strong_samples, weak_samples
from tcm.data.strong_views import PHOTOGRAPHS, SMALL_IMAGES
from tcm.data.task import DataConfig

SMALL = DataConfig(source_dir=Path("a"), target_dir=Path("b"), size=32)
IMAGES = torch.randint(0, 256, (40, 32, 32, 3), generator=torch.Generator().manual_seed(0)).byte()


@pytest.mark.parametrize(
    ("gentle", "size", "expected"),
    [(None, 32, SMALL_IMAGES), (None, 256, PHOTOGRAPHS), (True, 256, SMALL_IMAGES), (False, 32, PHOTOGRAPHS)],
)
def test_strong_views_are_as_strong_as_the_config_says(gentle: bool | None, size: int, expected: object):
    assert strength_of(dataclasses.replace(SMALL, size=size, gentle=gentle)) == expected


def test_weak_samples_are_crops_and_mirrored_only_if_the_config_says_so():
    def crops(flip: bool) -> int:
        """How many of the views are crops that are not mirrored; each image has 5 x 5 of them."""
        views = (weak_samples(IMAGES, dataclasses.replace(SMALL, flip=flip)) * 255).round().byte().movedim(1, -1)
        assert views.shape == (40, 28, 28, 3)
        places = [(top, left) for top in range(5) for left in range(5)]
        plain = [
            any(torch.equal(v, i[t : t + 28, x : x + 28]) for t, x in places)
            for v, i in zip(views, IMAGES, strict=True)
        ]
        return sum(plain)

    assert crops(flip=False) == 40
    assert 5 < crops(flip=True) < 35


def test_samples_are_the_same_every_time_and_strong_ones_may_be_asked_for_unmirrored():
    config = SMALL
    assert torch.equal(strong_samples(IMAGES, config, 28), strong_samples(IMAGES, config, 28))
    assert not torch.equal(strong_samples(IMAGES, config, 28), strong_samples(IMAGES, config, 28, flip=False))
    found = samples_of(IMAGES[:3], "photos", ["cup"] * 3, config)
    assert (found.originals == IMAGES[:3, 2:30, 2:30].numpy()).all()
    assert found.weak.shape == found.strong.shape == (3, VIEWS, 28, 28, 3)


def test_files_that_cannot_be_read_are_left_out(tmp_path: Path, make_images: Callable[..., Path]):
    folder = make_images(tmp_path / "photos", "cup/1.png", "cup/2.png", "hat/1.png")
    (folder / "cup" / "2.png").write_bytes(b"")
    images, rows = read_rows(read_domain(folder), torch.arange(3), 16, quiet=True)
    assert images.shape == (2, 16, 16, 3)
    assert rows.tolist() == [0, 2]
