"""tcm figure: figures of finished runs."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from tcm.analysis.curves import accuracy_curves, k_curves
from tcm.analysis.embedding import embed_runs
from tcm.analysis.grad_cam import compare_runs
from tcm.analysis.shown_images import Shown
from tcm.analysis.tradeoff import tradeoff as tradeoff_of
from tcm.cli.arguments import OptionalOutput, OptionalText, Output, Quiet, Run, Runs, Stores
from tcm.cli.folders import classifiers_below, store_of
from tcm.errors import InputError
from tcm.figures.activation import activation_figure
from tcm.figures.curves import curves_figure
from tcm.figures.embedding import embedding_figure
from tcm.figures.mechanisms import mechanisms_figure
from tcm.figures.svg import format_of, write_figure
from tcm.figures.tradeoff import tradeoff_figure
from tcm.mechanisms.gallery import run_galleries
from tcm.results.store import read_rows
from tcm.training.device import Device
from tcm.training.run_folder import mechanisms_run


def write(draw: Callable[[], Figure], out: Path, quiet: bool) -> int:
    """Draws the figure and writes it to a file."""
    format_of(out)  # an unknown format is an error before the work, not after it
    write_figure(draw(), out)
    if not quiet:
        print(out)
    return 0


def mechanisms(
    run: Run, out: OptionalOutput = None, images: int = 6, device: Device = "auto", quiet: Quiet = False
) -> int:
    """Draw a few images of both domains and their counterfactuals (Figure 4). The winners are outlined in red.

    Args:
        run: Folder of a finished run of tcm mechanisms or tcm fit.
        out: File to write the figure to: png, svg or pdf. Default: mechanisms.png inside the run.
        images: Number of images of each domain.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print nothing.
    """
    run = mechanisms_run(run)
    return write(
        lambda: mechanisms_figure(run_galleries(run, images, device, quiet)), out or run / "mechanisms.png", quiet
    )


def embedding(runs: Runs, out: Output = Path("embedding.png"), device: Device = "auto", quiet: Quiet = False) -> int:
    """Draw the features of runs by t-SNE, with the proxy A-distance of each run (Figure 7).

    All runs get the same images: at most 750 of each domain, of the first 15 classes.

    Args:
        runs: Folders of finished runs of tcm train or tcm fit, on the same data, or of a suite.
        out: File to write the figure to: png, svg or pdf.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print nothing.
    """
    found = classifiers_below(runs)
    return write(lambda: embedding_figure(embed_runs(found, device, quiet)), out, quiet)


def activation(
    runs: Runs,
    out: Output = Path("activation.png"),
    images: int = 6,
    source_images: int = 0,
    show: Shown = "differ",
    device: Device = "auto",
    quiet: Quiet = False,
) -> int:
    """Draw where runs look, in target images that only one of them classifies correctly (Figure 8).

    As many images as possible are correct in each run. Without target labels, the figure shows images on which the
    runs disagree. For a run that uses counterfactuals, it also shows the maps of each counterfactual.

    Args:
        runs: Folders of two or more finished runs of tcm train or tcm fit, on the same data, or of a suite.
        out: File to write the figure to: png, svg or pdf.
        images: Number of target images.
        source_images: Number of source images, above the target images. They have the same classes if possible.
        show: differ: target images that only one run classifies correctly. wrong: those that all runs classify wrongly.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print nothing.
    """
    found = classifiers_below(runs)

    def draw() -> Figure:
        return activation_figure(compare_runs(found, images, device, quiet, sources=source_images, shown=show))

    return write(draw, out, quiet)


def accuracy(runs: Runs, out: Output = Path("accuracy.png"), quiet: Quiet = False) -> int:
    """Draw target accuracy against training steps: one line per method, the mean over its seeds.

    Args:
        runs: Folders of finished runs of tcm train or tcm fit on the same data, or of a suite of tcm bench.
        out: File to write the figure to: png, svg or pdf.
        quiet: Print nothing.
    """
    return write(
        lambda: curves_figure(accuracy_curves(classifiers_below(runs)), percent=True, up="target accuracy"), out, quiet
    )


def tradeoff(
    stores: Stores,
    out: Output = Path("tradeoff.png"),
    benchmark: OptionalText = None,
    task: OptionalText = None,
    selection: str = "last",
    quiet: Quiet = False,
) -> int:
    """Draw target accuracy against minutes of training and against GPU memory: one point per method.

    Only rows of one kind of device are shown, that of the most rows. The minutes do not include the mechanisms of
    stage 1. Rows have a memory if they were measured on a GPU by version 0.3 or later.

    Args:
        stores: Folders of suites, or CSV files of results.
        out: File to write the figure to: png, svg or pdf.
        benchmark: Benchmark to show, such as Office-Home. Default: the one with the most methods.
        task: Task to show, such as A2C. Default: the one with the most methods.
        selection: Rule that selected the models.
        quiet: Print nothing.
    """
    if not stores:
        raise InputError("there are no results to draw; name the folder of a suite or a CSV file of results")
    return write(
        lambda: tradeoff_figure(tradeoff_of(read_rows(map(store_of, stores)), benchmark, task, selection)), out, quiet
    )


def k(runs: Runs, out: Output = Path("k.png"), quiet: Quiet = False) -> int:
    """Draw target accuracy against the number of mechanisms k (Table 4, Figure 6).

    Args:
        runs: Folders of finished runs of tcm train tcm with different k, or of a suite of tcm bench.
            Runs that differ only in k and the seed form one line.
        out: File to write the figure to: png, svg or pdf.
        quiet: Print nothing.
    """

    def draw() -> Figure:
        curves = k_curves(classifiers_below(runs, method="tcm"))
        numbers = sorted({int(k) for line in curves.values() for k in line.at})
        along = "k, the number of mechanisms"
        return curves_figure(curves, percent=True, along=along, up="target accuracy, last iterate", ticks=numbers)

    return write(draw, out, quiet)
