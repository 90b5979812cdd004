"""Uploaded bytes to an image. Only pixels get further: nothing else of a file is kept or sent back."""

import io
import threading
from typing import NoReturn

from PIL import Image, UnidentifiedImageError

from tcm.data.images import upright_rgb
from tcm.errors import printable

# The formats of `tcm.data.images.EXTENSIONS`, by Pillow's names. Other decoders of Pillow never see an upload.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
FOUND_FORMATS = {*FORMATS, "MPO"}  # many phones write JPEG files with a second image, which is not read
MAX_BYTES = 20_000_000  # of a request
MAX_PIXELS = 50_000_000  # of an image: 150 MB decoded
MAX_IMAGES = 16  # in a request
MAX_NAME = 200  # letters of a file's name that are kept

# Large images take much memory while they are decoded, so only a few are decoded at once.
_decoding = threading.BoundedSemaphore(2)


class RefusedUpload(Exception):
    """An upload that is not used: the status code of the response, and the reason."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


def decoded_upload(data: bytes, name: str) -> Image.Image:
    """The first frame of the image, upright, as 8-bit RGB. A `RefusedUpload` says what is wrong with it."""
    if not data:
        raise RefusedUpload(422, f"{name} is empty; send an image")
    with _decoding:
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                if image.format not in FOUND_FORMATS:
                    _refuse_format(name)
                if image.width * image.height > MAX_PIXELS:
                    size = f"{image.width} x {image.height} pixels"
                    raise RefusedUpload(413, f"{name} has {size}; send at most {MAX_PIXELS // 10**6} megapixels")
                return upright_rgb(image)
        except RefusedUpload:
            raise
        except UnidentifiedImageError:
            _refuse_format(name)
        except Image.DecompressionBombError as error:
            limit = f"{MAX_PIXELS // 10**6} megapixels"
            raise RefusedUpload(413, f"{name} has far too many pixels; send at most {limit}") from error
        except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise RefusedUpload(422, f"{name} is damaged: {printable(reason)}; send another file") from error


def shown_name(name: str | None) -> str:
    """The name of an uploaded file without its folders, on one line."""
    last = (name or "").replace("\\", "/").rpartition("/")[2]
    return printable(last)[:MAX_NAME] or "the image"


def _refuse_format(name: str) -> NoReturn:
    raise RefusedUpload(415, f"{name} is not an image that can be read; send jpg, png, webp, bmp, gif or tif")
