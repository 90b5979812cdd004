"""Train both stages of TCM on two folders of image files, and predict the classes of the second.

    python examples/fit_two_folders.py

The folders are written first: digits with one subfolder per class, and digits in another style without labels. With
folders of your own, `tcm.fit("photos", "cliparts", out="runs/fit")` is all it takes; the settings below are those of
small images and of a short run.
"""

from pathlib import Path

import numpy as np
import tyro
from PIL import Image

import tcm
from tcm.data import digits


def write_folders(folder: Path, count: int = 120) -> list[str]:
    """Writes folder/source/<class>/<image> and folder/target/<image>; the true classes of the target images."""
    source, target = digits.domain("source"), digits.domain("target")
    for name in digits.CLASSES:
        (folder / "source" / name).mkdir(parents=True, exist_ok=True)
    (folder / "target").mkdir(exist_ok=True)
    for index in range(count):
        name = f"{index:04d}.png"
        Image.fromarray(source.images[index]).save(folder / "source" / str(source.labels[index]) / name)
        Image.fromarray(target.images[index]).save(folder / "target" / name)
    return [digits.CLASSES[label] for label in target.labels[:count]]


def main(out: Path = Path("runs/examples"), steps: int = 100) -> None:
    """Write two folders, fit, predict.

    Args:
        out: Folder for images and runs.
        steps: Training steps of each stage.
    """
    truth = write_folders(out / "images")
    classifier = tcm.fit(
        out / "images" / "source",
        out / "images" / "target",
        out=out / "fit",
        k=2,
        steps=steps,
        mechanisms={"steps": steps},
    )
    found = classifier.predict(out / "images" / "target")
    print(f"{classifier} is right on {np.mean(found == truth):.1%} of the target images")


if __name__ == "__main__":
    tyro.cli(main)
