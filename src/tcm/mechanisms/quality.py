"""Are the mechanisms any good? How near they carry images to the other domain, in the features of a network."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor

from tcm.data.augment import as_input, as_stored, centre_cuts, cut, squares
from tcm.data.task import Task
from tcm.errors import InputError
from tcm.mechanisms.bank import SIDES, MechanismBank, Side, opposite
from tcm.mechanisms.disentangle import Transport
from tcm.mechanisms.reader import Readability, digit_reader, readability
from tcm.mechanisms.transport import fitting_batch, open_for_transport
from tcm.nn.backbone import Backbone, BackboneConfig
from tcm.progress import ProgressDisplay

BATCH = 256  # images whose features are taken at once


class Frechet(NamedTuple):
    """Frechet distances to a domain, of images that were carried there and of those that were not."""

    untouched: float  # between the domains as they are
    made: dict[Side, list[float]]  # by destination, one a counterfactual


class Quality(NamedTuple):
    """What a run of stage 1 is worth. The names tell the rows: one a mechanism, then perhaps all together."""

    names: list[str]
    frechet: Frechet
    readability: Readability | None  # of the digits alone


def run_quality(
    folder: Path, backbone: BackboneConfig, images: int, device: str = "auto", quiet: bool = False
) -> Quality:
    """Measures a finished run on so many images of each domain; the digits are measured by their own reader."""
    if images < 2:
        raise InputError(f"--images is {images}; give 2 or more")
    fabric, config, bank, task = open_for_transport(folder, device, quiet)
    crop, own = config.data.view.crop, config.data.is_digits and backbone == BackboneConfig()
    network = digit_reader().backbone if own else trained_backbone(backbone, crop)
    transport = singly_and_together(bank)
    batch = fitting_batch(config, task.source.size, fabric.device)
    total = sum(min(images, len(store)) for store in task)
    with ProgressDisplay(f"measuring {folder}", total, unit="image", quiet=quiet) as display:
        fabric.to_device(network)
        found = frechet(fabric, transport, network, task, crop, images=images, batch=batch, show=display.update)
    bank.to("cpu")
    names = [f"mechanism {number + 1}" for number in range(bank.k)]
    names += ["all together"] if bank.config.judged == "together" else []
    return Quality(names, found, readability(transport, task) if config.data.is_digits else None)


def trained_backbone(config: BackboneConfig, crop: int) -> Backbone:
    """The network whose features are compared, in evaluation mode; an error if it has learnt nothing."""
    config = config.resolved(small_images=False)
    config.require_crop(crop)
    backbone = config.build()
    if not backbone.pretrained:
        found = f"--backbone.name {config.name} has random weights, and its features mean nothing"
        raise InputError(f"{found}; give a file of trained ones with --backbone.weights")
    return backbone.eval()


def singly_and_together(bank: MechanismBank) -> Transport:
    """The bank's transport; where its mechanisms are judged together, the image with all their changes comes last.

    Counterfactuals [k or k + 1, n, 3, side, side] in [0, 1].
    """

    def transport(images: Tensor, to: Side) -> Tensor:
        before = 2 * images - 1
        made = torch.stack([bank.run_network(pair.network(to), before) for pair in bank.pairs()]).float()
        if bank.config.judged == "together":
            made = torch.cat([made, bank.judged(before, made)[None]])
        return ((made + 1) / 2).clamp(0, 1)

    return transport


def frechet(
    fabric: Fabric,
    transport: Transport,
    backbone: Backbone,
    task: Task,
    crop: int,
    *,
    images: int,
    batch: int = BATCH,
    show: Callable[[int], None] = lambda done: None,
) -> Frechet:
    """Distances in the features of at most so many images of the source and of the target, spread evenly over each.

    Whole stored images are transported, as for stage 2, and then centre-cropped.
    """
    some = {
        side: store.images[torch.linspace(0, len(store) - 1, min(images, len(store))).long()]
        for side, store in zip(SIDES, task, strict=True)
    }
    before = {side: features(fabric, backbone, pixels, crop) for side, pixels in some.items()}
    made: dict[Side, list[float]] = {}
    done = 0
    for origin in SIDES:
        to, parts = opposite(origin), []
        for pixels in some[origin].split(batch):
            with torch.inference_mode(), fabric.autocast():
                carried = as_stored(transport(as_input(pixels.to(fabric.device)), to))
            parts.append(features(fabric, backbone, carried.flatten(0, 1), crop).unflatten(0, (len(carried), -1)))
            done += len(pixels)
            show(done)
        made[to] = [frechet_distance(after, before[to]) for after in torch.cat(parts, dim=1)]
    return Frechet(frechet_distance(before["source"], before["target"]), made)


@torch.inference_mode()
def features(fabric: Fabric, backbone: Backbone, images: Tensor, crop: int) -> Tensor:
    """Features [n, d] on the CPU of uint8 images [n, size, size, 3], centre-cropped.

    The backbone is on the device, in evaluation mode, and normalises the images itself.
    """
    found = []
    for indices in torch.arange(len(images), device=images.device).split(BATCH):
        cuts = centre_cuts(len(indices), images.shape[1], crop).to(images.device)
        pixels = cut(images, squares(indices, cuts, images.shape[1], crop))
        with fabric.autocast():
            found.append(backbone(as_input(pixels.to(fabric.device))).float().cpu())
    return torch.cat(found)


def frechet_distance(a: Tensor, b: Tensor) -> float:
    """|m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^(1/2)) of Gaussians fitted to features [n, d] and [m, d].

    This is exact for the fitted Gaussians, also where n is not larger than d and the covariances have no full rank.
    As an estimate for the distributions behind them it is too large, the more so the fewer the images: compare
    distances of equally many images only.
    """
    a, b = a.double(), b.double()
    root_a, root_b = covariance_root(a), covariance_root(b)
    # The eigenvalues of C_a C_b are the squared singular values of this product; no covariance is formed or rooted.
    cross = torch.linalg.svdvals(root_a @ root_b.T).sum()
    means = (a.mean(dim=0) - b.mean(dim=0)).square().sum()
    return max(float(means + root_a.square().sum() + root_b.square().sum() - 2 * cross), 0.0)


def covariance_root(features: Tensor) -> Tensor:
    """R [min(n, d), d] with R^T R the covariance of features [n, d]."""
    centred = (features - features.mean(dim=0)) / (len(features) - 1) ** 0.5
    return torch.linalg.qr(centred, mode="r").R
