import errno
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tcm.data.images import (
    IN_MEMORY,
    MAX_PIXELS,
    BadImage,
    content_hash,
    decode,
    is_image,
    read_image,
    resized,
    upright_rgb,
)


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def pixel(path: Path, at: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    pixels = decode(path)
    assert (pixels.dtype, pixels.shape[2:]) == (np.uint8, (3,))
    return tuple(pixels[at[1], at[0]].tolist())


@pytest.mark.parametrize("extension", ["jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"])
def test_every_extension_is_read(tmp_path: Path, extension: str):
    path = saved(tmp_path / f"x.{extension}", Image.new("RGB", (5, 4), (255, 255, 255)))
    assert is_image(path.name)
    assert is_image(path.name.upper())
    assert decode(path).shape == (4, 5, 3)
    assert pixel(path) == (255, 255, 255)


@pytest.mark.parametrize("path", ["a.txt", "a", ".a.jpg", "._a.jpg", ".cache/a.jpg", "jpg", "a.jpg.part"])
def test_what_is_hidden_or_named_otherwise_is_not_an_image(path: str):
    assert not is_image(path)


@pytest.mark.parametrize("path", ["a b.jpg", "../x/a.jpg", "./a.jpg", "x/ü\n.PNG"])
def test_odd_names_are_images(path: str):
    assert is_image(path)


def test_greyscale_and_black_and_white(tmp_path: Path):
    assert pixel(saved(tmp_path / "l.png", Image.new("L", (3, 3), 77))) == (77, 77, 77)
    assert pixel(saved(tmp_path / "1.png", Image.new("1", (3, 3), 1))) == (255, 255, 255)


def test_transparent_parts_become_white(tmp_path: Path):
    assert pixel(saved(tmp_path / "rgba.png", Image.new("RGBA", (3, 3), (0, 0, 0, 0)))) == (255, 255, 255)
    half = pixel(saved(tmp_path / "half.png", Image.new("RGBA", (3, 3), (255, 0, 0, 128))))
    assert half == (255, 127, 127)
    assert pixel(saved(tmp_path / "la.png", Image.new("LA", (3, 3), (0, 0)))) == (255, 255, 255)


def test_palette_with_and_without_transparency(tmp_path: Path):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    plain = saved(tmp_path / "p.png", image)
    assert (pixel(plain), pixel(plain, (1, 0))) == ((10, 20, 30), (200, 100, 50))
    see_through = saved(tmp_path / "pt.png", image, transparency=b"\x00\xff")
    assert (pixel(see_through), pixel(see_through, (1, 0))) == ((255, 255, 255), (200, 100, 50))
    gif = saved(tmp_path / "pt.gif", image, transparency=0)
    assert (pixel(gif), pixel(gif, (1, 0))) == ((255, 255, 255), (200, 100, 50))


def test_cmyk_jpeg(tmp_path: Path):
    red, green, blue = pixel(saved(tmp_path / "cmyk.jpg", Image.new("CMYK", (8, 8), (0, 255, 255, 0))))
    assert red > 250
    assert max(green, blue) < 5


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path):
    values = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    for name in ("i16.png", "i16.tif"):
        path = saved(tmp_path / name, Image.fromarray(values))
        assert [pixel(path, (x, 0))[0] for x in range(4)] == [0, 1, 128, 255]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 32768, 65535]], dtype=np.int32), [0, 128, 255]),
        (np.array([[0, 100, 255]], dtype=np.int32), [0, 100, 255]),
        (np.array([[0, 501_000, 1_000_000]], dtype=np.int32), [0, 128, 255]),
        (np.array([[0, 0.5, 1]], dtype=np.float32), [0, 128, 255]),
        (np.array([[0, 100, 255]], dtype=np.float32), [0, 100, 255]),
        (np.array([[-1, 0, 1]], dtype=np.float32), [0, 128, 255]),
        (np.array([[np.nan, 0, 1]], dtype=np.float32), [0, 0, 255]),
    ],
)
def test_thirty_two_bits_are_scaled(tmp_path: Path, values: np.ndarray, expected: list[int]):
    path = saved(tmp_path / "x.tif", Image.fromarray(values))
    assert Image.open(path).mode in ("I", "F")
    assert [pixel(path, (x, 0))[0] for x in range(3)] == expected


@pytest.mark.parametrize("extension", ["png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_once(tmp_path: Path, orientation: int, extension: str):
    upright = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10)
    stored = {
        1: upright,
        2: upright.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: upright.transpose(Image.Transpose.ROTATE_180),
        4: upright.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: upright.transpose(Image.Transpose.TRANSPOSE),
        6: upright.transpose(Image.Transpose.ROTATE_90),
        7: upright.transpose(Image.Transpose.TRANSVERSE),
        8: upright.transpose(Image.Transpose.ROTATE_270),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / f"x.{extension}", stored, exif=exif)
    assert np.array_equal(decode(path), np.asarray(upright))


@pytest.mark.filterwarnings("ignore")
def test_damaged_exif_does_not_make_an_image_bad(tmp_path: Path):
    for number, exif in enumerate(
        [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"]
    ):
        path = saved(tmp_path / f"{number}.jpg", Image.new("RGB", (4, 4)), exif=exif)
        assert decode(path).shape == (4, 4, 3)


def test_first_frame_of_an_animation(tmp_path: Path):
    frames = [Image.new("RGB", (3, 3), colour) for colour in ("red", "blue")]
    path = saved(tmp_path / "x.gif", frames[0], save_all=True, append_images=frames[1:])
    assert pixel(path) == (255, 0, 0)


def test_the_content_counts_not_the_extension(tmp_path: Path):
    assert pixel(saved(tmp_path / "really-a.jpg", Image.new("RGB", (2, 2), (1, 2, 3)), format="PNG")) == (1, 2, 3)


@pytest.mark.parametrize("extension", ["jpg", "png", "webp", "bmp", "gif", "tif"])
def test_truncated_files(tmp_path: Path, extension: str):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = saved(tmp_path / f"x.{extension}", Image.fromarray(noise))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(BadImage) as caught:
        decode(path)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_and_foreign_files(tmp_path: Path):
    path = tmp_path / "x.jpg"
    path.write_bytes(b"")
    with pytest.raises(BadImage, match="empty"):
        decode(path)
    path.write_text("<html>not found</html>")
    with pytest.raises(BadImage, match="not an image"):
        decode(path)


def refused(path: Path, flags: int) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_files_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for read in (decode, content_hash):
        with pytest.raises(BadImage, match="No such file"):
            read(tmp_path / "gone.jpg")
        os.makedirs(tmp_path / "folder.jpg", exist_ok=True)
        with pytest.raises(BadImage, match="not a regular file"):
            read(tmp_path / "folder.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(BadImage, match="not a regular file"):
        decode(tmp_path / "pipe.jpg")
    path = saved(tmp_path / "x.png", Image.new("RGB", (2, 2)))
    # The tests may run as a user who may read everything.
    monkeypatch.setattr(os, "open", refused)
    for read in (decode, content_hash):
        with pytest.raises(BadImage, match="Permission denied"):
            read(path)


def png_of_claimed_size(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("size", [(20_000, 20_000), (10_001, 10_000), (2**31 - 1, 2**31 - 1)])
def test_a_header_that_claims_too_many_pixels(tmp_path: Path, size: tuple[int, int]):
    assert size[0] * size[1] > MAX_PIXELS
    path = tmp_path / "bomb.png"
    path.write_bytes(png_of_claimed_size(*size))
    with pytest.raises(BadImage, match="100 megapixels"):
        decode(path)


def photographs(height: int, width: int) -> list[np.ndarray]:
    from sklearn.datasets import load_sample_images

    return [np.ascontiguousarray(image[:height, -width:]) for image in load_sample_images().images]


@pytest.mark.parametrize("size", [32, 256, 500])
def test_resized_photographs_are_nearly_those_of_pillow(size: int):
    for photograph in photographs(375, 500):
        image = Image.fromarray(photograph)
        found = resized(image, size)
        assert (found.shape, found.dtype) == ((size, size, 3), np.uint8)
        assert np.array_equal(found, resized(photograph, size))
        expected = np.asarray(image.resize((size, size), Image.Resampling.BICUBIC))
        difference = np.abs(found.astype(int) - expected)
        assert difference.max() <= 3
        assert (difference > 0).mean() < 0.01


def test_an_image_of_the_wanted_size_is_not_changed():
    photograph = photographs(64, 64)[0]
    for form in (photograph, photograph[::-1, :, ::-1], Image.fromarray(photograph)):
        assert np.array_equal(resized(form, 64), np.asarray(form))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 9), (9, 1), (40, 7), (3, 200)])
def test_narrow_images_are_resized(height: int, width: int):
    grey = np.full((height, width, 3), 77, dtype=np.uint8)
    assert (resized(grey, 16) == 77).all()
    flipped = grey[:, ::-1, ::-1]  # as of an array in BGR
    assert (resized(flipped, 16) == 77).all()


RESIZED = """
import hashlib, sys
import numpy as np, torch
from tcm.data.images import resized
torch.set_num_threads(int(sys.argv[1]))
made = hashlib.blake2b(digest_size=8)
for height, width, size in ((375, 500, 256), (640, 427, 256), (30, 41, 72), (256, 256, 64), (1, 300, 9)):
    pixels = (np.arange(height * width * 3) * 40503 >> 7) % 256
    made.update(resized(pixels.astype(np.uint8).reshape(height, width, 3), size).tobytes())
print(made.hexdigest())
"""


@pytest.mark.parametrize(("capability", "threads"), [("default", 2), ("avx2", 1), ("", 2)])
def test_resized_images_are_the_same_on_every_machine(capability: str, threads: int):
    # If a new version of PyTorch resizes otherwise, raise RESIZED_FORMAT, so that stores are not mixed.
    environment = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    environment |= {"ATEN_CPU_CAPABILITY": capability} if capability else {}
    words = [sys.executable, "-W", "error", "-c", RESIZED, str(threads)]
    assert subprocess.check_output(words, env=environment, text=True).strip() == "c2b0bc864d483331"


def test_content_hash_is_of_the_bytes(tmp_path: Path):
    one, same, other = (tmp_path / name for name in ("a", "b", "c"))
    one.write_bytes(b"x" * 100_000)
    same.write_bytes(b"x" * 100_000)
    other.write_bytes(b"x" * 99_999 + b"y")
    assert content_hash(one) == content_hash(same) != content_hash(other)
    assert len(content_hash(one)) == 32


@pytest.mark.parametrize("padding", [0, IN_MEMORY])
def test_image_and_hash_are_read_together(tmp_path: Path, padding: int):
    path = saved(tmp_path / "x.png", Image.new("RGB", (3, 2), (1, 2, 3)))
    path.write_bytes(path.read_bytes() + b"x" * padding)
    image, content = read_image(path)
    assert content == content_hash(path)
    assert not isinstance(image, BadImage)
    assert np.array_equal(image, decode(path))


def test_a_file_that_is_not_an_image_still_has_a_hash(tmp_path: Path):
    path = tmp_path / "x.png"
    path.write_text("no image")
    image, content = read_image(path)
    assert str(image) == "not an image of a known format"
    assert content == content_hash(path)
    image, content = read_image(tmp_path / "gone.png")
    assert str(image) == str(content) == "No such file or directory"


def test_an_image_that_a_user_holds_is_not_turned_in_place(tmp_path: Path):
    image = Image.fromarray(np.arange(18, dtype=np.uint8).reshape(2, 3, 3))
    image.getexif()[0x0112] = 6
    turned = upright_rgb(image)
    assert turned.size == (2, 3)
    assert image.size == (3, 2)
