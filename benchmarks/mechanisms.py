"""What the mechanisms of stage 1 learn on the digits: the k x 4 matrix of factor shifts and the specialisation score.

python benchmarks/mechanisms.py RUN...      runs of `tcm mechanisms --data.benchmark digits`
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tcm.data.digits import FACTORS
from tcm.data.task import load_task
from tcm.mechanisms.discovery import load_mechanisms
from tcm.mechanisms.disentangle import Disentanglement, disentanglement


def matrix(title: str, found: Disentanglement) -> Table:
    """One row a mechanism: how far it moves each factor, 1 being the whole gap between the domains."""
    summary = f"specialisation {found.specialisation:.2f}, {found.factors_led} factors led"
    table = Table("mechanism", *(f"{name}" for name in FACTORS), "leads on", title=f"{title}: {summary}")
    for number, (to_target, to_source) in enumerate(zip(found.shifts["target"], found.shifts["source"], strict=True)):
        cells = [f"{there:+.2f} / {back:+.2f}" for there, back in zip(to_target, to_source, strict=True)]
        table.add_row(str(number + 1), *cells, found.leading[number])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    console = Console(width=120)
    for run in parser.parse_args().runs:
        config, bank = load_mechanisms(run)
        task = load_task(config.data, quiet=True)
        console.print(matrix(f"{run} (to target / to source)", disentanglement(bank.transport, task)))


if __name__ == "__main__":
    main()
