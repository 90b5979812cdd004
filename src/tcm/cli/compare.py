"""tcm compare: which of several runs is best, without target labels."""

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tcm.cli.arguments import Quiet, Runs
from tcm.cli.folders import compared_runs
from tcm.errors import printable
from tcm.estimation.compare import Comparison, compare_runs

SHOWN = 8  # classes whose shares differ most from the source's


def compare(runs: Runs, quiet: Quiet = False) -> int:
    """Rank runs on the same data without target labels, and warn of negative transfer and collapse.

    The ranking score is the one that was most reliable on known cases, among those that all runs have. It is printed
    with its regret on known cases: the accuracy of the best run minus that of the chosen one.

    Args:
        runs: Folders of two or more finished runs of tcm train or tcm fit, on the same data; or one of tcm fit alone,
            for all its runs.
        quiet: Print only the ranking.
    """
    runs = compared_runs(runs)
    found, console = compare_runs(runs), Console(markup=False)
    names = run_names(runs)
    console.print(ranking(found, names))
    for place, each in enumerate(found.runs, start=1):
        for warning in each.warnings:
            print(f"warning: {place}, {names[each.run]}: {warning}")
    if not quiet:
        console.print(scores(found, names))
        console.print(agreements(found))
        console.print(class_shares(found))
    return 0


def run_names(runs: Runs) -> dict[Path, str]:
    """The last part of each path, or the whole path where two have the same last part."""
    last = [run.name for run in runs]
    return {run: printable(run.name if last.count(run.name) == 1 else run) for run in runs}


def ranking(found: Comparison, names: dict[Path, str]) -> Table:
    """One row per run, the best first."""
    known = found.scores[found.ranked_by]
    cost = f"regret {100 * known.regret:.1f} points on {known.tasks} known tasks, {100 * known.worst:.1f} at worst"
    table = Table(title=f"ranked by {found.ranked_by}\n{cost}", title_style="bold")
    for heading in ("", "run", "method", "score", "estimate", "interval", "classes used"):
        justify = "left" if heading in ("run", "method") else "right"
        table.add_column(heading, justify=justify, no_wrap=heading == "method", overflow="fold")
    for place, each in enumerate(found.runs, start=1):
        low, high = 100 * each.estimate.low, 100 * each.estimate.high
        numbers = f"{each.score:.3f}", f"{100 * each.estimate.accuracy:.0f} %", f"{low:.0f} to {high:.0f} %"
        used = f"{each.used_classes:.0f} of {len(found.classes)}"
        table.add_row(str(place), names[each.run], each.method, *numbers, used)
    return table


def scores(found: Comparison, names: dict[Path, str]) -> Table:
    """Every score that all runs have: what it would choose, and how well it ranked known cases."""
    table = Table(title="what other scores choose, and how well they ranked known cases", title_style="bold")
    for heading in ("score", "chooses", "rank correlation", "regret", "worst"):
        table.add_column(heading, justify="left" if heading in ("score", "chooses") else "right")
    for name, known in sorted(found.scores.items(), key=lambda item: item[1].regret):
        points = f"{100 * known.regret:.1f}", f"{100 * known.worst:.1f}"
        table.add_row(name, names[found.choices[name]], f"{known.correlation:.2f}", *points)
    return table


def agreements(found: Comparison) -> Table:
    """The share of target images on which two runs agree."""
    table = Table(title="target images with the same prediction, in %; numbers as in the ranking", title_style="bold")
    table.add_column("")
    for place in range(len(found.runs)):
        table.add_column(str(place + 1), justify="right")
    for place, row in enumerate(found.agreement, start=1):
        table.add_row(str(place), *(f"{100 * share:.0f}" for share in row))
    return table


def class_shares(found: Comparison) -> Table:
    """The classes that are predicted much more or less often than they occur in the source."""
    shares = np.stack([each.shares for each in found.runs])
    furthest = np.argsort(-np.abs(shares - found.source_shares).max(axis=0), kind="stable")[:SHOWN]
    title = "classes whose shares differ most from the source's, in %; numbers as in the ranking"
    table = Table(title=title, title_style="bold")
    for heading in ("class", "source", *(str(place + 1) for place in range(len(found.runs)))):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for label in furthest:
        cells = (f"{100 * share:.1f}" for share in (found.source_shares[label], *shares[:, label]))
        table.add_row(printable(found.classes[label]), *cells)
    return table
