"""Are the mechanisms any good? What a finished run of stage 1 is worth."""

from pathlib import Path
from typing import NamedTuple

from tcm.errors import InputError, explain_out_of_memory
from tcm.mechanisms.digit_reader import Readability, readability
from tcm.mechanisms.distance import Frechet, comparing_network, fitting_batch, frechet, singly_and_together
from tcm.mechanisms.transport import open_for_transport
from tcm.nn.backbone import BackboneConfig
from tcm.progress import ProgressDisplay


class Quality(NamedTuple):
    """What a run of stage 1 is worth. The names tell the rows: one a mechanism, then perhaps all together."""

    names: list[str]
    frechet: Frechet
    readability: Readability | None  # of the digits alone


@explain_out_of_memory("measuring", "free some, or try --device cpu")
def run_quality(
    folder: Path, backbone: BackboneConfig, images: int, device: str = "auto", quiet: bool = False
) -> Quality:
    """Measures a finished run on so many images of each domain; the digits are measured by their own reader."""
    if images < 2:
        raise InputError(f"--images is {images}; give 2 or more")
    fabric, config, bank, task = open_for_transport(folder, device, quiet)
    crop, network = config.data.view.crop, comparing_network(backbone, config.data)
    transport = singly_and_together(bank)
    batch = fitting_batch(config.bank.generator, task.source.size, fabric.device)
    total = sum(min(images, len(store)) for store in task)
    with ProgressDisplay(f"measuring {folder}", total, unit="image", quiet=quiet) as display:
        fabric.to_device(network)
        found = frechet(fabric, transport, network, task, crop, images=images, batch=batch, show=display.update)
    bank.to("cpu")
    names = [f"mechanism {number + 1}" for number in range(bank.k)]
    names += ["all together"] if bank.config.critic_sees == "combined" else []
    return Quality(names, found, readability(transport, task) if config.data.is_digits else None)
