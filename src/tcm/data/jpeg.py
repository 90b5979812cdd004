"""Ordinary JPEG files to pixels by torchvision's decoder. It is faster than Pillow, and the pixels are the same."""

import importlib.util
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

START = b"\xff\xd8"
APP1 = 0xE1  # Exif or XMP, which may say that the image must be turned
FRAMES = (0xC0, 0xC1, 0xC2)  # the headers of the usual kinds: baseline, extended, progressive
LIBRARIES = (".so", ".dylib", ".pyd")
RGB = 3  # torchvision's number of the mode


def jpeg_pixels(data: memoryview, most: int) -> NDArray[np.uint8] | None:
    """The pixels [height, width, 3] of a JPEG file, grey or coloured, of at most `most` pixels.

    None if it is a case for Pillow: another format, a damaged file, an image to be turned, torchvision without decoder.
    """
    decoder = _decoder()
    if decoder is None or not _is_ordinary(data, most):
        return None
    try:
        return decoder(torch.frombuffer(data, dtype=torch.uint8), RGB).permute(1, 2, 0).numpy()
    except RuntimeError:
        return None


def _is_ordinary(data: memoryview, most: int) -> bool:
    """Whether the headers are those of a grey or coloured JPEG of at most `most` pixels without Exif or XMP."""
    if data[:2] != START:
        return False
    at = len(START)
    with suppress(struct.error):  # the file ends
        while True:
            mark, kind, length = struct.unpack_from(">BBH", data, at)
            if kind in FRAMES:
                height, width, channels = struct.unpack_from(">HHB", data, at + 5)
                return channels in (1, 3) and height * width <= most
            if mark != 0xFF or kind == APP1 or kind == 0xFF:
                return False
            at += 2 + length
    return False


@cache
def _decoder() -> Callable[[Tensor, int], Tensor] | None:
    # The library alone, because importing torchvision takes a second.
    package = importlib.util.find_spec("torchvision")
    for folder in package.submodule_search_locations or () if package else ():
        for file in Path(folder).glob("image*"):
            if file.suffix in LIBRARIES:
                with suppress(OSError):
                    torch.ops.load_library(file)
    return getattr(torch.ops.image, "decode_jpeg", None)  # torchvision 0.29 says that a later one will have none
