"""tcm mechanisms, tcm transport, tcm quality: the commands of stage 1."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from tcm.cli.app import with_options
from tcm.mechanisms.pair import SIDES, Side
from tcm.mechanisms.quality import Quality, run_quality
from tcm.mechanisms.train import MechanismsConfig, bank_config, train_mechanisms
from tcm.mechanisms.transport import transport as transport_run
from tcm.mechanisms.transport import win_shares
from tcm.mechanisms.usage import remarks
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device
from tcm.training.run_folder import Run


def mechanisms_command(parsed: MechanismsConfig | None) -> Callable[..., int]:
    """The command of stage 1; `parsed` is what the options say so far, on which their defaults depend."""
    start = MechanismsConfig()
    if parsed is not None:
        start = MechanismsConfig(form=parsed.form, bank=bank_config(parsed.form, parsed.data.is_small))

    def mechanisms(
        out: Path, config: Annotated[MechanismsConfig, tyro.conf.arg(name="")] = start, quiet: bool = False
    ) -> int:
        """Stage 1: learn k mechanisms that carry images between the domains.

        Args:
            out: Folder of the run. Repeating the command continues it.
            quiet: No progress, only the result.
        """
        return run_mechanisms(config, out, quiet)

    return mechanisms


def run_mechanisms(config: MechanismsConfig, out: Path, quiet: bool = False) -> int:
    """Trains the mechanisms, or continues where the run stopped, and prints how often each of them wins."""
    if not train_mechanisms(config, out, quiet):
        print(f"{out} is finished; nothing to do.")
        return 0
    rows, numbers = Run(out).metrics(), Run(out).about_model()["numbers"]
    last = [row for row in rows if "loss/critics" in row][-1]
    sides: dict[Side, list[float]] = {side: [last[f"wins/{side}/{number}"] for number in numbers] for side in SIDES}
    Console().print(wins_table("share of wins, last rows", sides))
    count = [row for row in rows if "unused" in row][-1]
    for remark in remarks(count, numbers):
        print(with_options(remark))
    watched = [row for row in rows if "frechet/untouched" in row]
    if watched:
        Console().print(watch_table(watched, numbers))
    if not quiet:
        print(f"The mechanisms: {Run(out).model_file}")
    return 0


def wins_table(title: str, shares: dict[Side, list[float]]) -> Table:
    """One row per mechanism: its share of wins among the images of each domain."""
    table = Table("mechanism", *(f"wins of {side} images" for side in shares), title=title)
    for number, cells in enumerate(zip(*shares.values(), strict=True), start=1):
        table.add_row(str(number), *(f"{100 * share:.0f} %" for share in cells))
    return table


def watch_table(rows: list[dict[str, float]], numbers: list[int]) -> Table:
    """One row per evaluation: the Frechet distances to each domain, in the mean over the mechanisms that are left and,
    where they are judged together, of the image with all their changes."""
    title = f"Frechet distances: {rows[-1]['frechet/untouched']:.1f} between the domains as they are"
    columns = {f"to the {side}, mean": [f"frechet/{side}/{number}" for number in numbers] for side in SIDES}
    if "frechet/target/together" in rows[-1]:
        columns |= {f"to the {side}, all together": [f"frechet/{side}/together"] for side in SIDES}
    table = Table("step", *columns, title=title)
    for row in rows:
        means = (np.mean([row[key] for key in keys]) for keys in columns.values())
        table.add_row(str(int(row["step"])), *(f"{mean:.1f}" for mean in means))
    return table


def transport(
    run: Path, out: Path | None = None, batch: int | None = None, device: Device = "auto", quiet: bool = False
) -> int:
    """Write all counterfactuals of every image of a finished run of tcm mechanisms, for both domains.

    Args:
        run: The run's folder.
        out: Folder for the images. Repeating the command continues it. Default: transported inside the run.
        batch: Images that are transported at once. Default: what the memory holds, 256 at most.
        device: Where to compute.
        quiet: No progress, only the result.
    """
    out = out or run / "transported"
    if not transport_run(run, out, batch=batch, device=device, quiet=quiet):
        print(f"{out} is finished; nothing to do.")
        return 0
    Console().print(wins_table("share of wins", win_shares(out)))
    if not quiet:
        print(f"The counterfactuals: {out / 'source' / 'images.npy'} and {out / 'target' / 'images.npy'}")
    return 0


def quality(
    run: Path,
    backbone: BackboneConfig = BackboneConfig(),
    images: int = 1000,
    device: Device = "auto",
    quiet: bool = False,
) -> int:
    """Measure how near the mechanisms of a finished run carry images to the other domain, and at what price.

    Args:
        run: The run's folder.
        backbone: The network in whose features domains are compared; the digits have one of their own.
        images: Images of each domain. Compare only what was measured with the same number.
        device: Where to compute.
        quiet: No progress, only the result.
    """
    Console().print(quality_table(run_quality(run, backbone, images, device, quiet)))
    return 0


def quality_table(found: Quality) -> Table:
    """One row per mechanism: the Frechet distances to both domains and, of digits, the shares that are still read."""
    columns = {
        f"distance to the {side}": [f"{distance:.2f}" for distance in (found.frechet.untouched, *distances)]
        for side, distances in found.frechet.transported.items()
    }
    if found.readability is not None:
        for side, shares in found.readability.transported.items():
            all_shares = (found.readability.untouched[side], *shares)
            columns[f"digits read, to the {side}"] = [f"{100 * share:.1f} %" for share in all_shares]
    table = Table("", *columns, title="Frechet distances: less is nearer")
    for cells in zip(["untouched", *found.names], *columns.values(), strict=True):
        table.add_row(*cells)
    return table
