"""How close transported images come to the other domain: Frechet distances in the features of a network."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
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
from tcm.training.device import Compute

BATCH = 256  # images in a batch of the backbone
LARGEST_BATCH = 256  # images in a batch of the generators
INDEXED = 2**31 - 1  # largest number of elements in a tensor that padding on a GPU can index


class Frechet(NamedTuple):
    """Frechet distances to a domain, before and after transport."""

    untouched: float  # between the two domains
    transported: dict[Side, list[float]]  # by destination, one for each counterfactual


@dataclass(frozen=True)
class WatchConfig:
    """Frechet distances at every evaluation of stage 1, which show whether transport still improves."""

    images: int = 0
    """Images of each domain to measure. 0: no distances."""

    def build(self, backbone: BackboneConfig, data: DataConfig) -> Backbone | None:
        """The network whose features are compared, or None if nothing is to be measured."""
        return comparison_network(backbone, data) if self.images else None

    def require_usable(self) -> None:
        """An error if the number of images cannot be used."""
        if self.images == 1 or self.images < 0:
            raise InputError("watch.images", f"is {self.images}; give 2 or more, or 0 for no distances")


class Watch:
    """Called at every evaluation of stage 1: returns the distances for metrics.jsonl."""

    def __init__(self, fabric: Compute, bank: MechanismBank, network: Backbone, task: Task, crop: int, images: int):
        self.fabric, self.bank, self.task, self.crop, self.images = fabric, bank, task, crop, images
        self.network = network
        fabric.to_device(network)

    def __call__(self) -> dict[str, float]:
        """The distances by name, for example frechet/target/0 for source images transported by mechanism 0."""
        fabric, bank, task = self.fabric, self.bank, self.task
        batch = transport_batch_size(bank.config.generator, task.source.size, fabric.device)
        transport = single_and_combined(bank)
        found = frechet(fabric, transport, self.network, task, self.crop, images=self.images, batch=batch)
        names = [*map(str, bank.active), "together"]
        row = {
            f"frechet/{to}/{name}": distance
            for to, distances in found.transported.items()
            for name, distance in zip(names, distances, strict=False)
        }
        return {"frechet/untouched": found.untouched, **row}


def transport_batch_size(generator: GeneratorConfig, side: int, device: torch.device) -> int:
    """The number of images to transport at once, from the memory that the widest layer needs for one."""
    room = torch.cuda.mem_get_info(device)[0] / 2 if device.type == "cuda" else 2**30
    # Transported and original images go through the way back in one batch, padded for the last layer.
    numbers = 2 * generator.width * (side + generator.kernel) ** 2
    needed = 6 * 4 * numbers  # bytes: about six such maps in float32 are in memory together
    return int(min(max(room // needed, 1), LARGEST_BATCH, max(INDEXED // numbers, 1)))


def comparison_network(config: BackboneConfig, data: DataConfig) -> Backbone:
    """The network whose features are compared; for digits their own, unless another is named."""
    if data.is_digits and config == BackboneConfig():
        return digit_reader().backbone
    return trained_backbone(config, data.view.crop)


def trained_backbone(config: BackboneConfig, crop: int) -> Backbone:
    """The network whose features are compared, in evaluation mode; an error if its weights are random."""
    config = config.resolved(small_images=False)
    config.require_crop(crop)
    backbone = config.build()
    if not backbone.pretrained:
        found = f"is {config.name} with random weights, whose features mean nothing"
        raise InputError("backbone.name", f"{found}; give a file of trained weights with `backbone.weights`")
    return backbone.eval()


def single_and_combined(bank: MechanismBank) -> Transport:
    """The transport of the bank. If its critics see all changes combined, the combined image comes last.

    Counterfactuals [k or k + 1, n, 3, side, side] in [0, 1].
    """

    def transport(images: Tensor, to: Side) -> Tensor:
        before = 2 * images - 1
        made = torch.stack([run_network(pair.network(to), before) for pair in bank.pairs()]).float()
        if bank.config.critic_sees == "combined":
            made = torch.cat([made, bank.critic_input(before, made)[None]])
        return ((made + 1) / 2).clamp(0, 1)

    return transport


def frechet(
    fabric: Compute,
    transport: Transport,
    backbone: Backbone,
    task: Task,
    crop: int,
    *,
    images: int,
    batch: int = BATCH,
    show: Callable[[int], None] = lambda done: None,
) -> Frechet:
    """Distances in the features of at most `images` images of each domain, at even distances in its store.

    Whole stored images are transported, as for stage 2, and then centre-cropped.
    """
    chosen = {
        side: store.images[torch.linspace(0, len(store) - 1, min(images, len(store))).long()]
        for side, store in zip(SIDES, task, strict=True)
    }
    before = {side: features(fabric, backbone, pixels, crop) for side, pixels in chosen.items()}
    transported: dict[Side, list[float]] = {}
    done = 0
    for origin in SIDES:
        to, parts = opposite(origin), []
        for pixels in chosen[origin].split(batch):
            with torch.inference_mode(), fabric.autocast():
                made = as_stored(transport(as_input(pixels.to(fabric.device)), to))
            parts.append(features(fabric, backbone, made.flatten(0, 1), crop).unflatten(0, (len(made), -1)))
            done += len(pixels)
            show(done)
        transported[to] = [frechet_distance(after, before[to]) for after in torch.cat(parts, dim=1)]
    return Frechet(frechet_distance(before["source"], before["target"]), transported)


@torch.inference_mode()
def features(fabric: Compute, backbone: Backbone, images: Tensor, crop: int) -> Tensor:
    """Features [n, d] on the CPU of uint8 images [n, size, size, 3], centre-cropped.

    The backbone must be on the device and in evaluation mode; it normalises the images itself.
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

    Exact for the fitted Gaussians, also if n <= d and the covariances do not have full rank. As an estimate for the
    true distributions it is too large, and more so for fewer images: compare only distances of equally many images.
    """
    a, b = ((part.cpu() if part.device.type == "mps" else part).double() for part in (a, b))  # Apple's have no float64
    root_a, root_b = covariance_root(a), covariance_root(b)
    # The eigenvalues of C_a C_b are the squared singular values of this product, so no covariance is computed.
    cross = torch.linalg.svdvals(root_a @ root_b.T).sum()
    means = (a.mean(dim=0) - b.mean(dim=0)).square().sum()
    return max(float(means + root_a.square().sum() + root_b.square().sum() - 2 * cross), 0.0)


def covariance_root(features: Tensor) -> Tensor:
    """R [min(n, d), d] with R^T R the covariance of features [n, d]."""
    centred = (features - features.mean(dim=0)) / (len(features) - 1) ** 0.5
    return torch.linalg.qr(centred, mode="r").R
