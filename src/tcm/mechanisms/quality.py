"""The quality of the mechanisms of a finished run: Frechet distances and, for digits, readability."""

from pathlib import Path
from typing import NamedTuple

from tcm.errors import InputError, explain_out_of_memory
from tcm.mechanisms.digit_reader import Readability, readability
from tcm.mechanisms.distance import Frechet, comparison_network, frechet, single_and_combined, transport_batch_size
from tcm.mechanisms.transport import open_for_transport
from tcm.nn.backbone import BackboneConfig
from tcm.progress import ProgressDisplay


class Quality(NamedTuple):
    """The quality of a run of stage 1. One name per row: the mechanisms, then all together if critics see them so."""

    names: list[str]
    frechet: Frechet
    readability: Readability | None  # None for other data than the digits


@explain_out_of_memory("measuring", "free some, or set `device=cpu`")
def run_quality(
    folder: Path, backbone: BackboneConfig, images: int, device: str = "auto", quiet: bool = False
) -> Quality:
    """Measures a finished run on at most `images` images of each domain; digits with a network of their own."""
    if images < 2:
        raise InputError("images", f"is {images}; give 2 or more")
    fabric, config, bank, task = open_for_transport(folder, device, quiet)
    crop, network = config.data.view.crop, comparison_network(backbone, config.data)
    transport = single_and_combined(bank)
    batch = transport_batch_size(config.bank.generator, task.source.size, fabric.device)
    total = sum(min(images, len(store)) for store in task)
    with ProgressDisplay(f"measuring {folder}", total, unit="image", quiet=quiet) as display:
        fabric.to_device(network)
        found = frechet(fabric, transport, network, task, crop, images=images, batch=batch, show=display.update)
    bank.to("cpu")
    names = [f"mechanism {number + 1}" for number in range(bank.k)]
    names += ["all together"] if bank.config.critic_sees == "combined" else []
    return Quality(names, found, readability(transport, task) if config.data.is_digits else None)
