"""Stage 1 on the digits: which factors the mechanisms change, what they preserve, their distance to the other domain.

python benchmarks/mechanisms.py --commands  the runs of the study, as commands
python benchmarks/mechanisms.py RUN...      runs of `tcm mechanisms --data.benchmark digits`; with several, a summary
python benchmarks/mechanisms.py RUN... --to benchmarks/results/mechanisms.csv
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from tcm.classifier.evaluation_files import training_seconds
from tcm.data.augment import as_input
from tcm.data.digits import FACTORS
from tcm.data.task import Task, load_task
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.competition import winners
from tcm.mechanisms.digit_reader import Readability, digit_reader, readability
from tcm.mechanisms.disentanglement import Disentanglement, disentanglement
from tcm.mechanisms.distance import Frechet, frechet, single_and_combined
from tcm.mechanisms.load import load_mechanisms
from tcm.mechanisms.pair import SIDES
from tcm.results.identity import RunFacts, grouped, identities, labels, spread
from tcm.results.store import ORIGIN, add_rows, origin, read_config
from tcm.training.device import make_fabric
from tcm.training.run_folder import Run

STUDY = {  # name: options
    "disentangled-k4": "--form disentangled",
    "paper-k4": "--form paper",
    "release-k4": "--form release",
    "paper-k1": "--form paper --k 1",
    "disentangled-no-overlap": "--form disentangled --bank.overlap 0",
    "disentangled-competition": "--form disentangled --bank.assignment competition",
    "paper-k2": "--form paper --k 2",  # this and the next for the study of stage 2
    "untrained-k4": "--form paper --steps 1",
}
SEEDS = range(3)
ALL_IMAGES = 10_000
DECIDED = 400  # images of each domain whose winners are looked at
# The numbers of a run. Means over mechanisms leave the unused ones out; the last row of Frechet distances and of
# readability, where there is one more than mechanisms, is that of all their changes together.
NUMBERS = {
    "specialisation": "mean share of the leading factor",
    "factors_led": "different factors led",
    "alive": "mechanisms that move anything",
    "spill": "mean shift of the factors not led",
    "moved": "mean shift of the leading factor",
    "read_untouched": "digits read, untouched, %",
    "read": "digits read, mean, %",
    "read_worst": "digits read, worst mechanism, %",
    "read_together": "digits read, all together, %",
    "frechet_untouched": "Frechet distance, untouched",
    "frechet": "Frechet distance, mean",
    "frechet_best": "Frechet distance, best mechanism",
    "frechet_together": "Frechet distance, all together",
    "as_adversarial": "winners that the adversarial term alone would choose, %",
    "as_reconstruction": "winners that cycle and identity terms alone would choose, %",
}
COLUMNS = ["form", "k", "seed", "steps", "seconds", *NUMBERS, "shifts", *ORIGIN]


class Measured(NamedTuple):
    """A run and its measurements."""

    folder: Path
    k: int
    factors: Disentanglement
    readability: Readability
    frechet: Frechet
    deciders: dict[str, float]


def measured(folder: Path) -> Measured:
    config, bank = load_mechanisms(folder)
    task = load_task(config.data, quiet=True)
    transport, backbone, crop = single_and_combined(bank), digit_reader().backbone, config.data.view.crop
    distances = frechet(make_fabric("cpu", "fp32"), transport, backbone, task, crop, images=ALL_IMAGES)
    factors, read = disentanglement(bank.transport, task), readability(transport, task)
    return Measured(folder, bank.k, factors, read, distances, deciders(bank, task))


@torch.no_grad()
def deciders(bank: MechanismBank, task: Task) -> dict[str, float]:
    """How often one part of the loss alone would choose the same winner as the whole loss (TCM Eq. (2))."""
    if bank.k == 1 or bank.config.score != "total":
        return {}
    same: dict[str, list[Tensor]] = {"as_adversarial": [], "as_reconstruction": []}
    for side, store in zip(SIDES, task, strict=True):
        found = [bank.terms(pair, 2 * as_input(store.images[:DECIDED]) - 1, side)[0] for pair in bank.pairs()]
        whole = torch.stack([bank.total(terms) for terms in found])
        alone = torch.stack([terms.adversarial for terms in found])
        same["as_adversarial"].append(winners(alone) == winners(whole))
        same["as_reconstruction"].append(winners(whole - alone) == winners(whole))
    return {name: 100 * float(torch.cat(parts).float().mean()) for name, parts in same.items()}


def numbers(found: Measured) -> dict[str, float | None]:
    """The columns of NUMBERS; None where a run has no such number."""
    k, factors, active = found.k, found.factors, found.factors.active
    read, distance = (np.mean(list(part.transported.values()), axis=0) for part in (found.readability, found.frechet))
    together = len(read) > k

    def mean(values: np.ndarray) -> float | None:
        return float(values[active].mean()) if active.any() else None

    return {
        "specialisation": factors.specialisation,
        "factors_led": factors.factors_led,
        "alive": int(active.sum()),
        "spill": mean(factors.spill),
        "moved": mean(np.abs(factors.mean_shifts).max(axis=1)),
        "read_untouched": 100 * statistics.mean(found.readability.untouched.values()),
        "read": 100 * float(read[:k].mean()),
        "read_worst": 100 * float(read[:k].min()),
        "read_together": 100 * float(read[k]) if together else None,
        "frechet_untouched": found.frechet.untouched,
        "frechet": float(distance[:k].mean()),
        "frechet_best": float(distance[:k].min()),
        "frechet_together": float(distance[k]) if together else None,
        **{name: found.deciders.get(name) for name in ("as_adversarial", "as_reconstruction")},
    }


def row(found: Measured) -> dict[str, str]:
    """The run's row in the CSV."""
    config = read_config(found.folder)
    shifts = {side: shift.round(3).tolist() for side, shift in found.factors.shifts.items()}
    return {
        "form": config["form"],
        "k": str(config["k"]),
        "seed": str(config["seed"]),
        "steps": str(config["steps"]),
        "seconds": f"{training_seconds(Run(found.folder)):.0f}",
        **{name: "" if x is None else f"{x:.3f}" for name, x in numbers(found).items()},
        "shifts": json.dumps(shifts),
        **origin(found.folder, config),
    }


def matrix(found: Measured) -> Table:
    """One row per mechanism, to the target / to the source: shifts (1 is the whole gap), digits read, distances."""
    factors, distance, read = found.factors, found.frechet, found.readability
    title = (
        f"{found.folder} (to target / to source): specialisation {factors.specialisation:.2f} of "
        f"{factors.active.sum()} mechanisms, {factors.factors_led} factors led"
    )
    table = Table("", *FACTORS, "leads on", "spill", "digits read, %", "Frechet", title=title)
    untouched = [100 * read.untouched[side] for side in ("target", "source")]
    table.add_row("untouched", *[""] * 6, "{:.1f} / {:.1f}".format(*untouched), f"{distance.untouched:.1f}")
    for number in range(len(distance.transported["target"])):
        shifts, leads, spill = [""] * len(FACTORS), "", ""
        if number < found.k:
            both = zip(factors.shifts["target"][number], factors.shifts["source"][number], strict=True)
            shifts = [f"{there:+.2f} / {back:+.2f}" for there, back in both]
            leads = factors.leading[number] if factors.active[number] else "(unused)"
            spill = f"{factors.spill[number]:.2f}"
        shares = [100 * read.transported[side][number] for side in ("target", "source")]
        near = [distance.transported[side][number] for side in ("target", "source")]
        name = str(number + 1) if number < found.k else "together"
        cells = "{:.1f} / {:.1f}"
        table.add_row(name, *shifts, leads, spill, cells.format(*shares), cells.format(*near))
    return table


def summary(runs: list[Measured]) -> Table:
    """Mean and sample standard deviation over seeds: one column per configuration."""
    configs = [read_config(found.folder) for found in runs]
    found = identities([RunFacts(config["form"], str(config["k"]), None, config) for config in configs])
    groups = grouped(runs, found)
    heads = [f"{name}\nseeds: {len(groups[one])}" for one, name in zip(groups, labels(list(groups)), strict=True)]
    table = Table("", *heads, title="mean ± sample standard deviation over seeds")
    values = [[numbers(run) for run in group] for group in groups.values()]
    for name, meaning in NUMBERS.items():
        known = ([x for one in group if (x := one[name]) is not None] for group in values)
        table.add_row(meaning, *(spread(some).text(2) if some else "" for some in known))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--to", type=Path, help="CSV that the rows are added to, one per run")
    parser.add_argument("--commands", action="store_true", help="print the runs of the study")
    arguments = parser.parse_args()
    if arguments.commands:
        for name, options in STUDY.items():
            for seed in SEEDS:
                words = ["tcm mechanisms --data.benchmark digits", options, f"--seed {seed}"]
                print(*filter(None, words), f"--out runs/mechanisms/{name}-s{seed}")
        return
    if not arguments.runs:
        parser.error("name the folders of runs, or use --commands to print the commands of the study")
    console, found = Console(width=150), []
    for folder in arguments.runs:
        found.append(measured(folder))
        console.print(matrix(found[-1]))
    if len(found) > 1:
        console.print(summary(found))
    if arguments.to:
        add_rows(arguments.to, map(row, found), COLUMNS, ("config_hash", "commit"))


if __name__ == "__main__":
    main()
