from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

MakeImages = Callable[..., Path]


@pytest.fixture
def make_images() -> MakeImages:
    """Writes small PNG images, each of its own colours, under root at the given relative paths."""

    def make(root: Path, *paths: str, size: tuple[int, int] = (8, 6), seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        root.mkdir(parents=True, exist_ok=True)
        for path in paths:
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(file, format="PNG")
        return root

    return make
