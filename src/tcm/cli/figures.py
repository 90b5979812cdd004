"""tcm figure: figures of finished runs."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from tcm.analysis.curves import accuracy_curves, k_curves
from tcm.analysis.embedding import embed_runs
from tcm.analysis.grad_cam import compare_runs
from tcm.cli.arguments import FirstRun, OptionalOutput, Output, Quiet, Run, Runs, SecondRun
from tcm.cli.folders import classifiers_below
from tcm.figures.activation import activation_figure
from tcm.figures.curves import curves_figure
from tcm.figures.embedding import embedding_figure
from tcm.figures.mechanisms import mechanisms_figure
from tcm.figures.svg import format_of, write_figure
from tcm.mechanisms.gallery import run_galleries
from tcm.training.device import Device
from tcm.training.run_folder import chosen_run, mechanisms_run


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


def embedding(
    first: FirstRun,
    second: SecondRun,
    out: Output = Path("embedding.png"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> int:
    """Draw the features of two runs by t-SNE, with the proxy A-distance of each run (Figure 7).

    Both runs get the same images: at most 750 of each domain, of the first 15 classes.

    Args:
        first: Folder of a finished run of tcm train or tcm fit.
        second: Folder of another run on the same data.
        out: File to write the figure to: png, svg or pdf.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print nothing.
    """
    return write(
        lambda: embedding_figure(embed_runs([chosen_run(first), chosen_run(second)], device, quiet)), out, quiet
    )


def activation(
    first: FirstRun,
    second: SecondRun,
    out: Output = Path("activation.png"),
    images: int = 6,
    device: Device = "auto",
    quiet: Quiet = False,
) -> int:
    """Draw where two runs look, in target images that only one of them classifies correctly (Figure 8).

    Half of the images are correct in the first run, the other half in the second. Without target labels, the figure
    shows images on which the runs disagree. For a run that uses counterfactuals, it also shows the maps of each
    counterfactual.

    Args:
        first: Folder of a finished run of tcm train or tcm fit.
        second: Folder of another run on the same data.
        out: File to write the figure to: png, svg or pdf.
        images: Number of target images.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print nothing.
    """
    runs = [chosen_run(first), chosen_run(second)]
    return write(lambda: activation_figure(compare_runs(runs, images, device, quiet)), out, quiet)


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
