"""Classify images with an exported ONNX file. It needs onnxruntime, numpy and Pillow, but neither tcm nor PyTorch.

    tcm export runs/erm --format onnx --out erm.onnx
    python examples/onnx_predict.py erm.onnx a.jpg b.jpg

All that the program must know is in the file: the names of the classes, and the size to which images are resized.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def read(path: Path, size: int) -> np.ndarray:
    """The image upright, resized nearly as in training, where PyTorch does it: uint8 [size, size, 3]."""
    with Image.open(path) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB").resize((size, size), Image.Resampling.BICUBIC))


def centre(images: np.ndarray, crop: int) -> np.ndarray:
    """The centres of images as floats in [0, 1]: [n, 3, crop, crop]."""
    corner = (images.shape[1] - crop) // 2
    inner = images[:, corner : corner + crop, corner : corner + crop]
    return np.ascontiguousarray(inner.transpose(0, 3, 1, 2), dtype=np.float32) / 255


def main() -> None:
    """Print the class and the confidence of every image."""
    parser = argparse.ArgumentParser(description="Classify images with an ONNX file.")
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path, nargs="+")
    options = parser.parse_args()
    session = onnxruntime.InferenceSession(options.model, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    classes, size, crop = (json.loads(about[key]) for key in ("classes", "size", "crop"))
    images = np.stack([read(path, size) for path in options.images])
    if about["preprocessing"] == "false":  # a file that was exported with --preprocessing crops the images itself
        images = centre(images, crop)
    (probabilities,) = session.run(["probabilities"], {"images": images})
    for path, row in zip(options.images, np.asarray(probabilities), strict=True):
        print(f"{path}: {classes[row.argmax()]} ({row.max():.4f})")


if __name__ == "__main__":
    main()
