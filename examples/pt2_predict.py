"""Classify images with an exported .pt2 file. It needs PyTorch, numpy and Pillow, but not tcm.

    tcm export runs/erm --format pt2 --preprocessing --out erm.pt2
    python examples/pt2_predict.py erm.pt2 a.jpg b.jpg

The file was exported with its preprocessing: it takes whole images as uint8, and crops and normalises them itself.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch.nn.functional import interpolate


def read(path: Path, size: int) -> torch.Tensor:
    """The image upright and resized as in training: uint8 [size, size, 3]."""
    with Image.open(path) as image:
        pixels = torch.from_numpy(np.array(ImageOps.exif_transpose(image).convert("RGB")))
    channels_first = pixels.permute(2, 0, 1)[None]
    return interpolate(channels_first, (size, size), mode="bicubic", antialias=True)[0].permute(1, 2, 0)


def main() -> None:
    """Print the class and the confidence of every image."""
    parser = argparse.ArgumentParser(description="Classify images with a .pt2 file.")
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path, nargs="+")
    options = parser.parse_args()
    files = {"about.json": ""}  # filled while loading
    model = torch.export.load(options.model, extra_files=files).module()
    about = json.loads(files["about.json"])
    if not about["preprocessing"]:
        raise SystemExit(f"{options.model} takes {about['input']}; export it with --preprocessing for this program")
    images = torch.stack([read(path, about["size"]) for path in options.images])
    with torch.no_grad():
        confidences, guesses = model(images).max(dim=1)
    for path, confidence, guess in zip(options.images, confidences.tolist(), guesses.tolist(), strict=True):
        print(f"{path}: {about['classes'][guess]} ({confidence:.4f})")


if __name__ == "__main__":
    main()
