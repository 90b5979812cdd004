"""How near mechanisms carry images to the other domain, in the features of a network."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor

from tcm.data.augment import as_input, as_stored, centre_crops, crop_images, crop_pixels
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.digit_reader import digit_reader
from tcm.mechanisms.disentanglement import Transport
from tcm.mechanisms.pair import SIDES, Side, opposite, run_network
from tcm.nn.backbone import Backbone, BackboneConfig
from tcm.nn.generator import GeneratorConfig

BATCH = 256  # images whose features are taken at once
LARGEST_BATCH = 256  # images that are carried at once
INDEXED = 2**31 - 1  # numbers of one tensor that a GPU's padding can reach


class Frechet(NamedTuple):
    """Frechet distances to a domain, of images that were carried there and of those that were not."""

    untouched: float  # between the domains as they are
    made: dict[Side, list[float]]  # by destination, one a counterfactual


@dataclass(frozen=True)
class WatchConfig:
    """Frechet distances at every evaluation of stage 1: whether its images still come nearer to the other domain."""

    images: int = 0
    """Images of each domain that are measured. 0: no distances."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    """The network whose features are compared. Digits: their own reader."""

    def build(self, data: DataConfig) -> Backbone | None:
        """The network, if anything is to be measured."""
        if not self.images:
            return None
        try:
            return comparing_network(self.backbone, data)
        except InputError as error:  # which names the option as other commands have it
            raise InputError(str(error).replace("--backbone.", "--watch.backbone.")) from error

    def require_usable(self) -> None:
        """An error for numbers that cannot be used."""
        if self.images == 1 or self.images < 0:
            raise InputError(f"--watch.images is {self.images}; give 2 or more, or 0 for no distances")


class Watch:
    """Called at every evaluation of stage 1: the distances that metrics.jsonl gets."""

    def __init__(self, fabric: Fabric, bank: MechanismBank, network: Backbone, task: Task, crop: int, images: int):
        self.fabric, self.bank, self.task, self.crop, self.images = fabric, bank, task, crop, images
        self.network = network
        fabric.to_device(network)

    def __call__(self) -> dict[str, float]:
        """frechet/target/0: of the source images that mechanism 0 carried to the target; and so on."""
        fabric, bank, task = self.fabric, self.bank, self.task
        batch = fitting_batch(bank.config.generator, task.source.size, fabric.device)
        transport = singly_and_together(bank)
        found = frechet(fabric, transport, self.network, task, self.crop, images=self.images, batch=batch)
        names = [*map(str, bank.living), "together"]
        row = {
            f"frechet/{to}/{name}": distance
            for to, distances in found.made.items()
            for name, distance in zip(names, distances, strict=False)
        }
        return {"frechet/untouched": found.untouched, **row}


def fitting_batch(generator: GeneratorConfig, side: int, device: torch.device) -> int:
    """How many images to transport at once, by the size of the widest layer's maps for one of them."""
    room = torch.cuda.mem_get_info(device)[0] / 2 if device.type == "cuda" else 2**30
    # What was carried there and the original come back together, padded for the last layer.
    numbers = 2 * generator.width * (side + generator.kernel) ** 2
    alive = 6 * 4 * numbers  # bytes: some six such maps of float32 at a time
    return int(min(max(room // alive, 1), LARGEST_BATCH, max(INDEXED // numbers, 1)))


def comparing_network(config: BackboneConfig, data: DataConfig) -> Backbone:
    """The network whose features are compared; digits have their own unless another is named."""
    if data.is_digits and config == BackboneConfig():
        return digit_reader().backbone
    return trained_backbone(config, data.view.crop)


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
        made = torch.stack([run_network(pair.network(to), before) for pair in bank.pairs()]).float()
        if bank.config.critic_sees == "combined":
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
        cuts = centre_crops(len(indices), images.shape[1], crop).to(images.device)
        pixels = crop_images(images, crop_pixels(indices, cuts, images.shape[1], crop))
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
