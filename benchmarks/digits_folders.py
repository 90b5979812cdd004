"""Writes the built-in digits as folders of PNG files, for the journeys of docs/own-folders.md.

    python benchmarks/digits_folders.py digits

gives digits/source and digits/target with one subfolder per class, and digits/target-unlabelled without.
"""

from pathlib import Path

import tyro
from PIL import Image

from tcm.data import digits


def main(out: tyro.conf.Positional[Path]) -> None:
    """Write the folders.

    Args:
        out: Folder to write to.
    """
    for side in ("source", "target"):
        made = digits.domain(side)
        for number, (image, label) in enumerate(zip(made.images, made.labels, strict=True)):
            places = [out / side / str(label), *([out / "target-unlabelled"] if side == "target" else [])]
            for place in places:
                place.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(place / f"{number:04d}.png")


if __name__ == "__main__":
    tyro.cli(main)
