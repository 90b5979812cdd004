"""One image file to RGB pixels. What cannot be read raises `BadImage` with the reason."""

import hashlib
import io
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch.nn.functional import interpolate

from tcm.data.jpeg import jpeg_pixels

Pixels: TypeAlias = NDArray[np.uint8]  # [height, width, 3]

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})

# An image of this many pixels takes 300 MB decoded. A header that claims more is refused before any decoding.
MAX_PIXELS = 100_000_000
UPRIGHT = 1  # the EXIF orientation of an image that needs no turning
# Opening a pipe that is named like an image would otherwise wait forever. Windows has a text mode.
OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
IN_MEMORY = 2**24  # bytes: smaller files are read at once, so that they are read only once


class BadImage(Exception):
    """An image file that cannot be read. Its text is the reason alone; the caller knows the path."""


def is_image(path: str) -> bool:
    """Whether a relative path is named like an image and no part of it is hidden."""
    # Plain text, not pathlib: a benchmark may have 200,000 files.
    hidden = "/." in f"/{path}" and any(part.startswith(".") and part not in (".", "..") for part in path.split("/"))
    return path[path.rfind(".") :].lower() in EXTENSIONS and not hidden


class ReadImage(NamedTuple):
    """What an image file holds: its pixels and the hash of its bytes, or why there is none."""

    pixels: Pixels | BadImage
    content: str | BadImage


def decode(path: str | Path) -> Pixels:
    """The first frame of the file, upright, as 8-bit RGB [height, width, 3]; transparent parts become white."""
    with _opened(path) as file:
        return _decoded(file)


def content_hash(path: str | Path) -> str:
    """A hash of the file's bytes, 32 hexadecimal digits."""
    with _opened(path) as file:
        return _hashed(file)


def read_image(path: str | Path) -> ReadImage:
    """What `decode` and `content_hash` find, in one reading. It raises no BadImage."""
    try:
        with _opened(path) as file:
            content = _hashed(file)
            file.seek(0)
            try:
                return ReadImage(_decoded(file), content)
            except BadImage as reason:
                return ReadImage(reason, content)
    except BadImage as reason:
        return ReadImage(reason, reason)


def upright_rgb(image: Image.Image) -> Image.Image:
    """The image's current frame, upright, as 8-bit RGB; transparency is laid on white."""
    image.load()
    with suppress(Exception):  # damaged metadata does not make the pixels unreadable
        if image.getexif().get(ExifTags.Base.Orientation, UPRIGHT) != UPRIGHT:
            image = ImageOps.exif_transpose(image)
    return _to_rgb(image)


def resized(image: Image.Image | Pixels, size: int) -> Pixels:
    """The RGB image as [size, size, 3]: bicubic, aspect ratio not kept, as is usual for the benchmarks."""
    # No JPEG draft mode: it downsamples in the DCT domain, which changes the pixels.
    pixels = np.asarray(image)
    if pixels.shape[:2] == (size, size):
        return pixels
    writable = np.require(pixels, requirements=["C", "W"])  # torch takes no other memory without a warning
    channels_last = torch.from_numpy(writable)[None].permute(0, 3, 1, 2)  # twice as fast as planes
    made = interpolate(channels_last, (size, size), mode="bicubic", antialias=True)
    return made[0].permute(1, 2, 0).contiguous().numpy()


def _opened(path: str | Path) -> io.BytesIO | io.BufferedReader:
    """The file to read from; a BadImage if it cannot be read or has no content."""
    try:
        descriptor = os.open(path, OPEN)  # Python's open does more, which takes longer than decoding a small image
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise BadImage("not a regular file")
            if status.st_size == 0:
                raise BadImage("the file is empty (0 bytes)")
            if status.st_size > IN_MEMORY:
                return open(path, "rb")
            return io.BytesIO(b"".join(iter(partial(os.read, descriptor, status.st_size), b"")))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BadImage(_reason(error)) from error


def _hashed(file: io.BytesIO | io.BufferedReader) -> str:
    made = hashlib.blake2b(digest_size=16)
    try:
        while piece := file.read(IN_MEMORY):
            made.update(piece)
    except OSError as error:
        raise BadImage(_reason(error)) from error
    return made.hexdigest()


def _decoded(file: io.BytesIO | io.BufferedReader) -> Pixels:
    if isinstance(file, io.BytesIO) and (pixels := jpeg_pixels(file.getbuffer(), MAX_PIXELS)) is not None:
        return pixels
    try:
        with Image.open(file) as image:
            if image.width * image.height > MAX_PIXELS:
                raise BadImage(_too_large(f"{image.width} x {image.height}"))
            return np.asarray(upright_rgb(image))
    except BadImage:
        raise
    except Image.DecompressionBombError as error:
        raise BadImage(_too_large("far too many")) from error
    except UnidentifiedImageError as error:
        raise BadImage("not an image of a known format") from error
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
        raise BadImage(_reason(error)) from error


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())


def _too_large(found: str) -> str:
    return f"the header claims {found} pixels, the limit is {MAX_PIXELS // 1_000_000} megapixels"


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return _scaled(np.asarray(image), white=65535)
    if image.mode in ("I", "F"):
        values = np.nan_to_num(np.asarray(image))
        return _scaled(values, _white(values, smallest=1 if image.mode == "F" else 255))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(ground, layer).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _white(values: np.ndarray, smallest: int) -> float:
    # Files of 32 bits do not say which value is white: take the smallest usual one that no pixel exceeds.
    top = float(values.max())
    return next((white for white in (1, 255, 65535) if smallest <= white and top <= white), top)


def _scaled(values: np.ndarray, white: float) -> Image.Image:
    # Values below zero are rare (heights, temperatures): the darkest of them becomes black.
    black = min(0.0, float(values.min()))
    scaled = (values.astype(np.float32) - black) * (255 / (white - black))
    return Image.fromarray(np.round(scaled).astype(np.uint8)).convert("RGB")
