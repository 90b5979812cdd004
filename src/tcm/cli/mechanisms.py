"""tcm mechanisms, tcm transport, tcm quality: the commands of stage 1."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from tcm.cli.arguments import Log, OptionalInt, OptionalOutput, Output, Quiet
from tcm.cli.arguments import Run as RunFolder
from tcm.cli.messages import is_first_process, with_options
from tcm.cli.show import print_log
from tcm.mechanisms.pair import SIDES, Side
from tcm.mechanisms.quality import Quality, run_quality
from tcm.mechanisms.train import MechanismsConfig, bank_config, train_mechanisms
from tcm.mechanisms.transport import transport as transport_run
from tcm.mechanisms.transport import win_shares
from tcm.mechanisms.usage import remarks
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device
from tcm.training.run_folder import Run, mechanisms_run
from tcm.training.tracking import TrackerName


def mechanisms_command(parsed: Mapping[str, Any] | None) -> Callable[..., int]:
    """The command of stage 1, with defaults that fit the arguments parsed so far."""
    start = MechanismsConfig()
    if parsed is not None:
        form, data = parsed["config"].form, parsed["config"].data
        start = MechanismsConfig(form=form, bank=bank_config(form, data.is_small))

    def mechanisms(
        out: Output,
        config: Annotated[MechanismsConfig, tyro.conf.arg(name="")] = start,
        log: Log = None,
        quiet: Quiet = False,
    ) -> int:
        """Stage 1: train k mechanisms that transport images between the domains.

        Args:
            out: Folder of the run. Repeat the command to continue a run that was interrupted.
            log: Also send the metrics and a grid of counterfactuals to a tracker; csv: files in the run.
            quiet: Print only the result, no progress.
        """
        return run_mechanisms(config, out, quiet, log)

    return mechanisms


def run_mechanisms(config: MechanismsConfig, out: Path, quiet: bool = False, log: TrackerName | None = None) -> int:
    """Trains the mechanisms, or continues an interrupted run, and prints how often each mechanism wins."""
    trained = train_mechanisms(config, out, quiet, log=log)
    if not is_first_process():
        return 0
    if not trained:
        print(f"{out} is finished; nothing to do.")
        return 0
    rows, numbers = Run(out).metrics(), Run(out).about_model()["numbers"]
    last = [row for row in rows if "loss/critics" in row][-1]
    sides: dict[Side, list[float]] = {side: [last[f"wins/{side}/{number}"] for number in numbers] for side in SIDES}
    Console().print(wins_table("share of wins in the last logged steps", sides))
    count = [row for row in rows if "unused" in row][-1]
    for remark in remarks(count, numbers):
        print(with_options(remark))
    watched = [row for row in rows if "frechet/untouched" in row]
    if watched:
        Console().print(watch_table(watched, numbers))
    if not quiet:
        print(f"The mechanisms: {Run(out).model_file}")
        print_log(log, out)
    return 0


def wins_table(title: str, shares: dict[Side, list[float]]) -> Table:
    """One row per mechanism: its share of wins among the images of each domain."""
    table = Table("mechanism", *(f"wins of {side} images" for side in shares), title=title)
    for number, cells in enumerate(zip(*shares.values(), strict=True), start=1):
        table.add_row(str(number), *(f"{100 * share:.0f} %" for share in cells))
    return table


def watch_table(rows: list[dict[str, float]], numbers: list[int]) -> Table:
    """One row per evaluation: the mean over all mechanisms of the Frechet distances to each domain.

    If the critics see the mechanisms combined, further columns have the distances of the image with all changes.
    """
    title = f"Frechet distances; between the untouched domains: {rows[-1]['frechet/untouched']:.1f}"
    columns = {f"to the {side}, mean": [f"frechet/{side}/{number}" for number in numbers] for side in SIDES}
    if "frechet/target/together" in rows[-1]:
        columns |= {f"to the {side}, combined": [f"frechet/{side}/together"] for side in SIDES}
    table = Table("step", *columns, title=title)
    for row in rows:
        means = (np.mean([row[key] for key in keys]) for keys in columns.values())
        table.add_row(str(int(row["step"])), *(f"{mean:.1f}" for mean in means))
    return table


def transport(
    run: RunFolder,
    out: OptionalOutput = None,
    batch: OptionalInt = None,
    device: Device = "auto",
    devices: int = 1,
    quiet: Quiet = False,
) -> int:
    """Write the counterfactuals of every image of both domains under all mechanisms of a run.

    Args:
        run: Folder of a finished run of tcm mechanisms or tcm fit.
        out: Folder for the counterfactuals. Repeat the command to continue. Default: transported, inside the run.
        batch: Number of images in a pass of the network. Default: as many as fit into memory, at most 256.
        device: Device to compute on; auto: the GPU if there is one.
        devices: Number of GPUs, or on a CPU of processes, that divide the images.
        quiet: Print only the result, no progress.
    """
    run = mechanisms_run(run)
    out = out or run / "transported"
    transported = transport_run(run, out, batch=batch, device=device, devices=devices, quiet=quiet)
    if not is_first_process():
        return 0
    if not transported:
        print(f"{out} is finished; nothing to do.")
        return 0
    Console().print(wins_table("share of wins", win_shares(out)))
    if not quiet:
        print(f"The counterfactuals: {out / 'source' / 'images.npy'} and {out / 'target' / 'images.npy'}")
    return 0


def quality(
    run: RunFolder,
    backbone: BackboneConfig = BackboneConfig(),
    images: int = 1000,
    device: Device = "auto",
    quiet: Quiet = False,
) -> int:
    """Measure how close the images that the mechanisms transport are to the other domain (Frechet distance).

    Args:
        run: Folder of a finished run of tcm mechanisms or tcm fit.
        backbone: Network whose features are compared. The built-in digits use their own network.
        images: Number of images of each domain. Compare only distances of the same number of images.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print only the result, no progress.
    """
    Console().print(quality_table(run_quality(mechanisms_run(run), backbone, images, device, quiet)))
    return 0


def quality_table(found: Quality) -> Table:
    """One row per mechanism: the Frechet distances to both domains and, for digits, the share that stays readable."""
    columns = {
        f"distance to the {side}": [f"{distance:.2f}" for distance in (found.frechet.untouched, *distances)]
        for side, distances in found.frechet.transported.items()
    }
    if found.readability is not None:
        for side, shares in found.readability.transported.items():
            all_shares = (found.readability.untouched[side], *shares)
            columns[f"digits read, to the {side}"] = [f"{100 * share:.1f} %" for share in all_shares]
    table = Table("", *columns, title="Frechet distances: smaller is closer")
    for cells in zip(["untouched", *found.names], *columns.values(), strict=True):
        table.add_row(*cells)
    return table
