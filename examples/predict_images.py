"""Load a finished run and predict the classes of images, whatever form they have.

python examples/predict_images.py
"""

from pathlib import Path

import torch
import tyro
from PIL import Image

import tcm
from tcm.data import digits


def main(out: Path = Path("runs/examples"), steps: int = 200) -> None:
    """Predict files, PIL images, numpy arrays and torch tensors.

    Args:
        out: Folder for the run, which is trained if it is not there.
        steps: Its training steps.
    """
    tcm.train("dan", data={"benchmark": "digits"}, out=out / "dan", steps=steps, evaluate_every=steps)
    classifier = tcm.load(out / "dan")  # from its model.safetensors alone
    print(classifier, classifier.classes)

    pixels = digits.domain("target").images[:3]  # uint8 [3, 32, 32, 3]
    pictures = [Image.fromarray(image) for image in pixels]
    files = [out / f"digit-{index}.png" for index in range(3)]
    for picture, file in zip(pictures, files, strict=True):
        picture.save(file)
    tensor = torch.from_numpy(pixels).movedim(-1, 1) / 255  # float [3, 3, 32, 32] in [0, 1]

    for name, images in {"files": files, "PIL": pictures, "numpy": pixels, "torch": tensor}.items():
        print(f"{name}: {', '.join(classifier.predict(images))}")
    print("probabilities of the first image:", classifier.predict_proba(files[0]).round(3))
    print("features of all images:", classifier.features(files).shape)


if __name__ == "__main__":
    tyro.cli(main)
