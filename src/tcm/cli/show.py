"""What several commands print: the accuracies of runs, and remarks on their problems."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from tcm.classifier.selection import collapse_warning
from tcm.cli.app import with_options
from tcm.config import from_json
from tcm.errors import InputError, printable
from tcm.estimation.estimate import Estimate
from tcm.mechanisms.judgement import Judgement, remarks
from tcm.methods.tcm.head_diagnostics import head_metrics, head_remarks
from tcm.training.files import can_be_replaced
from tcm.training.run_folder import Run, read_json
from tcm.training.tracking import FOLDER, TrackerName

SOURCE_HEADINGS = {False: "source accuracy", True: "source accuracy, held out"}


def scores_table(summaries: Sequence[dict[str, Any]], estimates: Sequence[Estimate | None] = ()) -> Table:
    """One row per run: its accuracies, also on each of several sources, the selection rule and the time.

    With `estimates`, one for each run, a target without labels has these instead of accuracies.
    """
    if any(estimates) and all(summary["target"]["accuracy"] is None for summary in summaries):
        return estimates_table(summaries, estimates)
    source, target = summaries[0]["source"]["name"], summaries[0]["target"]["name"]
    table = Table(title=f"{printable(source)} → {printable(target)}", title_style="bold")
    domains = [domain["name"] for domain in summaries[0]["source"].get("domains", [])]
    held_out = has_held_out(summaries)
    accuracies = ("target accuracy", "mean per class", SOURCE_HEADINGS[held_out], *map(printable, domains))
    for heading in ("method", *accuracies, "selected by", "time"):
        left, whole = heading in ("method", "selected by"), heading == "method"  # a name is never cut off
        table.add_column(heading, justify="left" if left else "right", no_wrap=whole)
    for summary in summaries:
        accuracy = [summary["target"][key] for key in ("accuracy", "mean_class_accuracy")]
        cells = ["no labels" if value is None else f"{100 * value:.1f} %" for value in accuracy]
        sources = [summary["source"], *summary["source"].get("domains", [])]
        cells += [source_accuracy(source, held_out) for source in sources]
        table.add_row(summary["method"], *cells, summary["selection"], f"{summary['seconds']:.0f} s")
    return table


def estimates_table(summaries: Sequence[dict[str, Any]], estimates: Sequence[Estimate | None]) -> Table:
    """One row per run on a target without labels: its estimated accuracy, the source accuracy and the time."""
    source, target = summaries[0]["source"]["name"], summaries[0]["target"]["name"]
    table = Table(title=f"{printable(source)} → {printable(target)}", title_style="bold")
    table.add_column("method", no_wrap=True)
    held_out = has_held_out(summaries)
    for heading in ("estimated target accuracy", SOURCE_HEADINGS[held_out], "time"):
        table.add_column(heading, justify="right")
    for summary, found in zip(summaries, estimates, strict=True):
        cells = [found.in_short if found else "–", source_accuracy(summary["source"], held_out)]
        table.add_row(summary["method"], *cells, f"{summary['seconds']:.0f} s")
    return table


def has_held_out(summaries: Sequence[dict[str, Any]]) -> bool:
    """Whether all runs, in each of their sources, kept images from training, which show how good a model is."""
    sources = [source for summary in summaries for source in (summary["source"], *summary["source"].get("domains", []))]
    return all(source.get("held_out_accuracy") is not None for source in sources)


def source_accuracy(source: dict[str, Any], held_out: bool) -> str:
    """The accuracy on the images of a source, or on those that were held out."""
    return f"{100 * source['held_out_accuracy' if held_out else 'accuracy']:.1f} %"


def print_remarks(run: Path) -> None:
    """Prints the problems of the run's predictions and of its causal head, one line each."""
    rows, classes = Run(run).metrics(), read_json(run / "evaluation.json")["classes"]
    found = head_metrics(rows)
    noted = Run(run).judgement()
    unused = remarks(from_json(Judgement, noted, str(run))) if noted else []
    for remark in filter(
        None, [collapse_warning(rows, len(classes)), *unused, *(head_remarks(found) if found else [])]
    ):
        print(with_options(remark))


def print_log(log: TrackerName | None, out: Path) -> None:
    """Prints where the copy of the metrics is, and what shows it."""
    place = f"{FOLDER} in each run of {printable(out)}" if not Run(out).exists else printable(out / FOLDER)
    shown_by = {
        "csv": f"{place}: csv/metrics.csv",
        "tensorboard": f"{place}; tensorboard --logdir {printable(out)} shows it",
        "wandb": f"Weights & Biases; with WANDB_MODE=offline wandb sync sends {place}/wandb",
        "trackio": "trackio show opens it",
    }
    if log:
        print(f"The log: {shown_by[log]}")


def require_writable(file: Path, field: str) -> None:
    """An error if the file cannot be written. Called before the work; it changes no file."""
    place = os.path.realpath(file)
    needed = [place] * os.path.exists(place) + [os.path.dirname(place)] * can_be_replaced(file)
    if os.path.isdir(file) or not all(os.access(path, os.W_OK) for path in needed):
        reason = "it is a folder" if os.path.isdir(file) else "its folder does not exist or is not writable"
        raise InputError(field, f"{file} cannot be written: {reason}; choose another file")
