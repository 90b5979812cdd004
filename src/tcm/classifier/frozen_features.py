"""Features of networks that are not trained: computed once for all images of a task, and kept in the cache."""

import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tcm.classifier.evaluate import BATCH, Predictions, run_in_batches
from tcm.data.store import ImageStore
from tcm.data.task import Task, default_cache
from tcm.errors import InputError
from tcm.methods.frozen import FrozenMethod
from tcm.nn.backbone import Backbone
from tcm.progress import ProgressDisplay
from tcm.training.device import Compute
from tcm.training.files import make_folder, write_atomically
from tcm.training.processes import current_processes
from tcm.training.run_config import RunConfig

Network = Callable[[Tensor], Tensor]
SOME = 64  # images whose features are computed between two updates of the progress display


def features_of_task(fabric: Compute, network: Network, task: Task, config: RunConfig) -> tuple[Tensor, Tensor]:
    """The network's output for all images of both domains, on the device: [n, width] each.

    That of a frozen network comes from the cache if it is there.
    """
    crop = config.data.view.crop
    if not (isinstance(network, Backbone) and is_frozen(network)):
        source, target = (torch.cat([*run_in_batches(fabric, network, store.images, crop)]) for store in task)
        return source, target
    how = f"{weights_digest(network)} {network.width} {crop} {fabric.device.type} {config.precision}"
    folder = (config.data.cache or default_cache()) / "features"
    source, target = (cached_features(fabric, network, store, crop, folder, how) for store in task)
    return source, target


def is_frozen(network: nn.Module) -> bool:
    """Whether nothing in the network is trained."""
    return not any(parameter.requires_grad for parameter in network.parameters())


def weights_digest(network: nn.Module) -> str:
    """A hash of all parameters and buffers."""
    found = hashlib.blake2b(digest_size=16)
    for name, tensor in network.state_dict().items():
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def cached_features(
    fabric: Compute, network: nn.Module, store: ImageStore, crop: int, folder: Path, how: str
) -> Tensor:
    """The features of a store's images, from the file in `folder` or computed and written there.

    `how` names all that the features depend on beside the images.
    """
    file = folder / f"{hashlib.blake2b(f'{how} {store.fingerprint}'.encode(), digest_size=16).hexdigest()}.npy"
    found = current_processes().from_first(lambda: read_features(file))
    if found is not None and len(found) == len(store):
        return torch.from_numpy(found).to(fabric.device)
    computed = computed_features(fabric, network, store, crop)
    if not current_processes().first:
        return computed
    content = io.BytesIO()
    np.save(content, computed.float().cpu().numpy())
    try:
        make_folder(folder)
        write_atomically(file, content.getvalue())
    except InputError:  # a full or read-only cache costs time, not the result
        pass
    return computed


def read_features(file: Path) -> NDArray[np.float32] | None:
    """The features in a file of the cache; None if it is not there, or damaged."""
    try:
        return np.load(file)
    except (OSError, ValueError, EOFError):
        return None


def computed_features(fabric: Compute, network: nn.Module, store: ImageStore, crop: int) -> Tensor:
    """The features of a store's images, with a progress display."""
    parts: list[Tensor] = []
    quiet = not current_processes().first
    with ProgressDisplay(f"features of {store.name}", len(store), unit="image", quiet=quiet) as display:
        for some in store.images.split(SOME):
            parts += run_in_batches(fabric, network, some, crop)
            display.update(sum(map(len, parts)))
    return torch.cat(parts).float()


def predict_features(method: FrozenMethod, features: Tensor) -> Predictions:
    """The predictions of a method on features that are known already, on the CPU."""
    with torch.inference_mode():
        answers = [method.answer_of(some) for some in features.split(BATCH)]
    logits = torch.cat([answer.logits for answer in answers]).float()
    return Predictions(logits.softmax(dim=1).cpu(), torch.cat([answer.features for answer in answers]).float().cpu())
