import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tcm.data import images
from tcm.data.images import MAX_PIXELS, BadImage, decode, read_image, upright_rgb
from tcm.data.jpeg import jpeg_pixels


def photograph(height: int = 90, width: int = 121) -> Image.Image:
    from sklearn.datasets import load_sample_images

    return Image.fromarray(np.ascontiguousarray(load_sample_images().images[0][:height, :width]))


def jpeg(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def found_in(data: bytes, most: int = MAX_PIXELS) -> np.ndarray | None:
    return jpeg_pixels(io.BytesIO(data).getbuffer(), most)


def by_pillow(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(upright_rgb(image))


ORDINARY = [
    {},
    {"quality": 20, "subsampling": "4:2:0"},
    {"quality": 95, "subsampling": "4:2:2"},
    {"quality": 100, "subsampling": "4:4:4"},
    {"subsampling": 0, "keep_rgb": True},
    {"progressive": True},
    {"optimize": True, "restart_marker_blocks": 3},
    {"comment": b"a comment", "icc_profile": bytes(70_000)},
]


@pytest.mark.parametrize("options", ORDINARY, ids=str)
@pytest.mark.parametrize(("height", "width"), [(90, 121), (64, 64), (1, 1), (17, 2)])
def test_ordinary_files_have_the_pixels_of_pillow(options: dict[str, Any], height: int, width: int):
    data = jpeg(photograph(height, width), **options)
    pixels = found_in(data)
    assert pixels is not None
    assert pixels.flags.c_contiguous
    assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize("progressive", [False, True])
def test_grey_files_have_the_pixels_of_pillow(progressive: bool):
    data = jpeg(photograph().convert("L"), progressive=progressive)
    assert Image.open(io.BytesIO(data)).mode == "L"
    pixels = found_in(data)
    assert pixels is not None
    assert np.array_equal(pixels, by_pillow(data))


def exif(orientation: int) -> Image.Exif:
    made = Image.Exif()
    made[0x0112] = orientation
    return made


OTHER = {  # the file, and the reason if it cannot be read
    "empty": (lambda: b"", "the file is empty (0 bytes)"),
    "start alone": (lambda: b"\xff\xd8", "not an image of a known format"),
    "text": (lambda: b"no image", "not an image of a known format"),
    "cut in the header": (lambda: jpeg(photograph())[:100], "Truncated File Read"),
    "cut in the pixels": (lambda: jpeg(photograph())[:-200], "image file is truncated"),
    "without its end": (lambda: jpeg(photograph())[:-1], "image file is truncated"),
    "cmyk": (lambda: jpeg(photograph().convert("CMYK")), ""),
    "upright": (lambda: jpeg(photograph(), exif=exif(1)), ""),
    "turned": (lambda: jpeg(photograph(), exif=exif(6)), ""),
    "turned by xmp": (lambda: jpeg(photograph(), xmp=b'<x tiff:Orientation="6"/>'), ""),
}


@pytest.mark.parametrize("kind", OTHER)
def test_other_files_are_left_to_pillow(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    made, reason = OTHER[kind]
    data = made()
    assert found_in(data) is None
    assert found_in(bytes(3) + data) is None
    assert capfd.readouterr() == ("", "")
    (tmp_path / "x.jpg").write_bytes(data)
    found = read_image(tmp_path / "x.jpg").pixels
    if isinstance(found, BadImage):
        assert reason
        assert reason in str(found)
    else:
        assert not reason
        assert np.array_equal(found, by_pillow(data))
        assert found.shape == ((121, 90, 3) if kind.startswith("turned") else (90, 121, 3))


def test_a_header_that_claims_too_many_pixels_is_left_to_pillow():
    data = jpeg(photograph(10, 20))
    assert found_in(data, most=200) is not None
    assert found_in(data, most=199) is None


def test_damaged_files_are_read_as_pillow_reads_them(capfd: pytest.CaptureFixture[str]):
    rng, read = np.random.default_rng(0), 0
    for number in range(600):
        data = bytearray(jpeg(photograph(40, 50), progressive=bool(number % 2)))
        for place in rng.integers(len(data), size=1 + number % 3):
            data[place] = rng.integers(256)
        data = data[: len(data) if number % 4 else int(rng.integers(len(data)))]
        pixels = found_in(bytes(data))
        if pixels is not None:
            read += 1
            assert np.array_equal(pixels, by_pillow(bytes(data)))
    assert read > 100


def test_pixels_do_not_depend_on_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "x.jpg").write_bytes(jpeg(photograph()))
    expected = decode(tmp_path / "x.jpg")
    monkeypatch.setattr(images, "jpeg_pixels", lambda *_: None)
    assert np.array_equal(decode(tmp_path / "x.jpg"), expected)


def test_files_of_office_home_have_the_pixels_of_pillow(shared_data: Path):
    files = sorted((shared_data / "office-home").rglob("*.jpg"))[::25]
    assert len(files) > 400
    for file in files:
        pixels = found_in(file.read_bytes())
        assert pixels is not None
        assert np.array_equal(pixels, by_pillow(file.read_bytes()))
