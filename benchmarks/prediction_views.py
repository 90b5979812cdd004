"""How accurate finished runs of TCM are when they see the whole image instead of its centre.

    python benchmarks/prediction_views.py runs/C2A

For each run of `tcm` or `tcm-control`, target images are shown in several ways: the centre crop, as the product does;
the whole image, resized to the side of the crop; the whole image as it is stored, and enlarged. The centroids are
computed anew from the features of each way. Last comes the mean of the features of the centre and of the whole image.
Printed are the accuracies of the linear classifier and of the centroids, which look at target labels: use it for the
development pair only (docs/results/default.md).
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.classifier.evaluate import score
from tcm.classifier.trained import load_trained
from tcm.data.augment import as_input
from tcm.data.task import load_task
from tcm.methods.tcm.tcm import TCM
from tcm.training.device import inference_on

BATCH = 64


def centre(images: Tensor, crop: int) -> Tensor:
    """The middle of the images, crop x crop."""
    start = (images.shape[-1] - crop) // 2
    return images[..., start : start + crop, start : start + crop]


def resized(images: Tensor, crop: int) -> Tensor:
    """The whole images at crop x crop."""
    return F.interpolate(images, (crop, crop), mode="bilinear", antialias=True)


def whole(images: Tensor, _: int) -> Tensor:
    """The images as they are stored."""
    return images


def enlarged(images: Tensor, _: int) -> Tensor:
    """The images at 9/8 of their stored side: 288 for 256. Networks often do better on larger images than they saw."""
    side = images.shape[-1] * 9 // 8
    return F.interpolate(images, (side, side), mode="bicubic").clamp(0, 1)


VIEWS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "centre crop": centre,
    "whole, resized": resized,
    "whole": whole,
    "whole, enlarged": enlarged,
}


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    for run in options.runs:
        trained = load_trained(run)
        method, crop = trained.method, trained.config.data.view.crop
        assert isinstance(method, TCM), f"{run} is a run of {trained.name}"
        fabric = inference_on(options.device, trained.config.precision)
        fabric.to_device(method)
        target = load_task(trained.config.data).target
        features: dict[str, Tensor] = {}
        for name, view in VIEWS.items():
            with fabric.autocast():
                seen = [
                    method.features(view(as_input(part.to(fabric.device)), crop)) for part in target.images.split(BATCH)
                ]
            features[name] = torch.cat(seen).float()
        features["mean of both"] = (features["centre crop"] + features["whole"]) / 2
        for name, found in features.items():
            linear = method.logits(found).softmax(dim=1)
            method.centroids.fit(found, linear)
            scores = [
                score(part.cpu(), target.labels, len(trained.classes)) for part in (linear, method.centroids(found))
            ]
            shown = [f"{100 * part.accuracy:.2f}" for part in scores if part is not None]
            print(f"{run}  {name:15} linear classifier, centroids: {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
