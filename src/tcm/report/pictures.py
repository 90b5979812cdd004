"""Images in an HTML page."""

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from tcm.data.images import resized


@dataclass(frozen=True)
class Picture:
    """A thumbnail and what is known about it; fields that do not apply are empty."""

    data: str
    small: bool
    true: str = ""
    predicted: str = ""
    confidence: float = 0.0
    second: str = ""  # the second most probable class
    second_confidence: float = 0.0
    path: str = ""


def picture(image: np.ndarray, most: int | None = None, **known: Any) -> Picture:
    """The image, reduced to the side `most`, as a data URI: PNG up to 48 pixels, where it is small, else JPEG."""
    if most is not None and len(image) > most:
        image = resized(image, most)
    small = max(image.shape[:2]) <= 48
    buffer = io.BytesIO()
    if small:
        Image.fromarray(image).save(buffer, "PNG", optimize=True)
    else:
        Image.fromarray(image).save(buffer, "JPEG", quality=88)
    kind = "png" if small else "jpeg"
    return Picture(f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}", small, **known)
