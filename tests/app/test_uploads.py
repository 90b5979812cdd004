"""Uploads are read as the library reads files, and nothing else is."""

import io

import numpy as np
import pytest
from PIL import Image

from tcm.app.uploads import FORMATS, RefusedUpload, decoded_upload, shown_name
from tcm.data.images import EXTENSIONS, decode


def test_the_formats_are_those_of_the_library():
    Image.init()
    assert {Image.EXTENSION[extension] for extension in EXTENSIONS} == set(FORMATS)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read_as_from_a_file(kind: str, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
    file = tmp_path / "image"
    Image.fromarray(pixels).save(file, kind)
    found = decoded_upload(file.read_bytes(), "x")
    assert found.size == (20, 12)
    assert np.array_equal(np.asarray(found), np.asarray(decode(file)))


def test_a_turned_photograph_stands_upright():
    buffer, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    Image.new("RGB", (20, 12)).save(buffer, "JPEG", exif=exif)
    assert decoded_upload(buffer.getvalue(), "x").size == (12, 20)


def test_a_refusal_names_the_file():
    with pytest.raises(RefusedUpload, match=r"photo\.jpg") as found:
        decoded_upload(b"not an image", "photo.jpg")
    assert found.value.status == 415


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a.png", "a.png"),
        ("../../etc/a.png", "a.png"),
        ("C:\\x\\a.png", "a.png"),
        ("", "the image"),
        (None, "the image"),
    ],
)
def test_names_lose_their_folders(given: str | None, shown: str):
    assert shown_name(given) == shown


def test_names_are_short_and_on_one_line():
    assert shown_name("a\nb.png") == r"a\nb.png"
    assert len(shown_name("x" * 5000)) <= 200
