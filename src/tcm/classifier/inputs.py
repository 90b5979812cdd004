"""Images in any form that a user has them, as the pixels that a run stores."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tcm.data.folders import images_below
from tcm.data.images import BadImage, decode, resized, upright_rgb
from tcm.data.reading import read_all
from tcm.errors import InputError, printable

Pixels: TypeAlias = NDArray[np.uint8]
Images: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[Any] | Tensor | Iterable[Images]"

EXPECTED = "give a path, a PIL image, a numpy array, a torch tensor, or a list of these"
CHANNELS_LAST = "[height, width, 3] or [n, height, width, 3] in a numpy array"
CHANNELS_FIRST = "[3, height, width] or [n, 3, height, width] in a tensor"


def stored_pixels(images: Images, size: int) -> Iterator[Pixels]:
    """Every image as uint8 [size, size, 3], resized as training images are. What cannot be used is an InputError."""
    items = separate_images(images, "images")
    if not items:
        raise InputError("images", f"is empty; {EXPECTED}")
    paths = [item for item in items if isinstance(item, Path)]
    # Files are read in threads. PIL images are not: one that stands in the list twice must not be loaded twice at once.
    one_by_one = partial(_pixels_of, size=size)
    return read_all(one_by_one, paths, "reading", quiet=True) if len(paths) == len(items) else map(one_by_one, items)


def separate_images(images: Images, where: str) -> Sequence[Path | Image.Image | Pixels]:
    """The single images: files, PIL images, and arrays uint8 [height, width, 3]; `where` names them in messages."""
    if isinstance(images, str | os.PathLike):
        path = Path(images).expanduser()
        return [path / name for name in image_paths(path)] if os.path.isdir(path) else [path]
    if isinstance(images, Image.Image):
        return [images]
    if isinstance(images, np.ndarray) and images.dtype.kind not in "UO":  # those hold paths, such as a table's column
        return _separate_array(images, where)
    if isinstance(images, Tensor):
        return _separate_tensor(images, where)
    if isinstance(images, Iterable):
        parts = (separate_images(item, f"{where}[{index}]") for index, item in enumerate(images))
        return [image for part in parts for image in part]
    raise InputError(where, f"is of type {type(images).__name__}; {EXPECTED}")


def image_paths(folder: Path) -> list[str]:
    """The relative POSIX paths of all images below the folder, sorted; an error if there are none."""
    if paths := images_below(folder):
        return paths
    found = f"{printable(folder)} holds no images (jpg, png, webp, bmp, gif, tif)"
    raise InputError(f"{found}; give the folder that holds them")


def read_pixels(path: Path, size: int) -> Pixels | BadImage:
    """The file's image as uint8 [size, size, 3], or why it cannot be read."""
    try:
        return resized(decode(path), size)
    except BadImage as reason:
        return reason


def _pixels_of(image: Path | Image.Image | Pixels, size: int) -> Pixels:
    if isinstance(image, np.ndarray):
        return resized(image, size)
    if isinstance(image, Image.Image):
        try:
            return resized(upright_rgb(image), size)
        except Exception as error:  # its file is read only now, and Pillow raises nearly anything on damaged bytes
            name = printable(getattr(image, "filename", "") or "a PIL image")
            raise InputError(f"{name} cannot be read: {printable(error)}; check it or leave it out") from error
    found = read_pixels(image, size)
    if isinstance(found, BadImage):
        raise InputError(f"{printable(image)} cannot be read: {printable(found)}; check it or leave it out")
    return found


def _separate_tensor(images: Tensor, where: str) -> Sequence[Pixels]:
    _require_shape(images.shape, -3, CHANNELS_FIRST, where)
    images = images.detach().cpu()
    # numpy has no bfloat16.
    return _separate_array((images.float() if images.is_floating_point() else images).movedim(-3, -1).numpy(), where)


def _separate_array(images: NDArray[Any], where: str) -> Sequence[Pixels]:
    _require_shape(images.shape, -1, CHANNELS_LAST, where)
    if np.issubdtype(images.dtype, np.floating):
        images = images.astype(np.float32, copy=False)
        lowest, highest = images.min(), images.max()
        if not (lowest >= 0 and highest <= 1):  # written so that NaN is refused
            raise InputError(where, f"has floats from {lowest:g} to {highest:g}; give floats from 0 to 1, or uint8")
        images = np.rint(images * 255).astype(np.uint8)
    if images.dtype != np.uint8:
        raise InputError(where, f"has the dtype {images.dtype}; give uint8 from 0 to 255, or floats from 0 to 1")
    return list(images.reshape(-1, *images.shape[-3:]))


def _require_shape(shape: Sequence[int], channels: int, expected: str, where: str) -> None:
    if len(shape) not in (3, 4) or shape[channels] != 3 or 0 in shape[-3:]:
        raise InputError(where, f"has the shape {list(shape)}; give RGB images, {expected}")
    if 0 in shape:
        raise InputError(where, f"is empty; {EXPECTED}")
