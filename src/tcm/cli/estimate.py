"""tcm estimate and tcm audit: how good a run probably is, without target labels and with a few."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tcm.cli.arguments import OptionalFile, OptionalOutput, Quiet, Run, Runs
from tcm.cli.messages import with_options
from tcm.cli.show import require_writable
from tcm.errors import InputError, printable
from tcm.estimation.audit import audit_run, draw_sample, note_sample, read_audit, sample_csv
from tcm.estimation.audit_page import write_audit_page
from tcm.estimation.estimate import ESTIMATORS, Estimate, estimate_run
from tcm.estimation.inputs import read_predictions, run_folder
from tcm.training.files import write_atomically


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
    console = Console(markup=False)
    console.print(headlines(runs, found))
    for run in runs:
        if audited := read_audit(run):
            print(f"{printable(run)}: audit: {audited.sentence}")
    if not quiet:
        console.print(single_estimates(runs, found))
        for remark in dict.fromkeys(filter(None, (each.remark for each in found))):
            print(with_options(remark))
        print("docs/results/estimates.md has the known cases; with a few labels, tcm audit measures the accuracy")
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


def audit(
    run: Run,
    n: int = 100,
    seed: int = 0,
    out: OptionalOutput = None,
    csv: OptionalOutput = None,
    labels: OptionalFile = None,
    quiet: Quiet = False,
) -> int:
    """Draw a random sample of target images that you label, and compute the accuracy from your labels.

    First: tcm audit RUN writes a page. Open it, press one key per image, export the labels. Then:
    tcm audit RUN --labels FILE prints the accuracy with an exact 95 % interval and stores it in the run.

    Args:
        run: Folder of a finished run of tcm train or tcm fit.
        n: Number of images to label. 100 give an interval of about 10 points to each side, 400 of about 5.
        seed: Seed of the draw. The same n and seed give the same sample.
        out: File for the page. Default: audit.html in the run.
        csv: Write the sample to this CSV file in place of a page. Fill in its last column.
        labels: The exported or filled CSV file. Nothing is drawn.
        quiet: Print only the result.
    """
    if labels is not None:
        print(audit_run(run, labels).sentence)
        return 0
    file = csv or out or run_folder(run) / "audit.html"
    require_writable(file, "csv" if csv else "out")
    sample = draw_sample(run, n, seed)
    if csv:
        write_atomically(csv, sample_csv(sample).encode("utf-8", "surrogateescape"))
    else:
        write_audit_page(run, sample, file, quiet)
    note_sample(run, sample)
    print(file)
    if not quiet:
        todo = "fill in the column label" if csv else "open this page in a browser, label the images, export the labels"
        print(f"{len(sample.paths)} images of {printable(run)}: {todo}, then run")
        print(f"tcm audit {printable(run)} --labels {printable(csv or f'labels-{sample.identity}.csv')}")
    return 0
