"""tcm estimate: how good runs probably are, without target labels."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tcm.cli.arguments import Quiet, Runs
from tcm.cli.messages import with_options
from tcm.errors import InputError, printable
from tcm.estimation.estimate import ESTIMATORS, Estimate, estimate_run
from tcm.estimation.inputs import read_predictions


def estimate(runs: Runs, quiet: Quiet = False) -> int:
    """Estimate the target accuracy of finished runs without target labels. The result is also written into each run.

    Runs that differ in the seed alone make each other's estimate better. The interval contained about nine of ten
    known cases; docs/results/estimates.md shows them.

    Args:
        runs: Folders of finished runs of tcm train or tcm fit.
        quiet: Print only the table of the runs, not that of the single estimators.
    """
    if not runs:
        raise InputError("there are no runs; name at least one")
    found = [estimate_run(run, same_data(run, runs)) for run in runs]
    console = Console()
    console.print(headlines(runs, found))
    if not quiet:
        console.print(single_estimates(runs, found))
        for remark in dict.fromkeys(filter(None, (each.remark for each in found))):
            print(with_options(remark))
    return 0


def same_data(run: Path, runs: Sequence[Path]) -> list[Path]:
    """The other runs on the same images."""
    mine = read_predictions(run)
    return [other for other in runs if other != run and mine.same_data(read_predictions(other))]


def headlines(runs: Sequence[Path], found: Sequence[Estimate]) -> Table:
    """One row per run: the estimate, its interval and its error on known cases."""
    table = Table(title="estimated target accuracy", title_style="bold")
    for heading in ("run", "estimate", "interval", "error on known cases"):
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for run, each in zip(runs, found, strict=True):
        interval = f"{100 * each.low:.0f} to {100 * each.high:.0f} %"
        error = f"{100 * each.error:.1f} points on {each.cases}"
        table.add_row(printable(run), f"{100 * each.accuracy:.0f} %", interval, error)
    return table


def single_estimates(runs: Sequence[Path], found: Sequence[Estimate]) -> Table:
    """One row per estimator, one column per run."""
    table = Table(title="single estimators, in %", title_style="bold")
    table.add_column("estimator")
    for run in runs:
        table.add_column(printable(run.name), justify="right")
    for name, explanation in ESTIMATORS.items():
        cells = [f"{100 * each.estimators[name]:.0f}" if name in each.estimators else "-" for each in found]
        if any(cell != "-" for cell in cells):
            table.add_row(f"{name}: {explanation}", *cells)
    return table
