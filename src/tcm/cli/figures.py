"""What each `tcm figure` command does. Their signatures are the options, as those of `commands.py`."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from tcm.analysis.curves import accuracy_curves, k_curves
from tcm.analysis.embedding import embed_runs
from tcm.analysis.grad_cam import compare_runs
from tcm.figures.activation import activation_figure
from tcm.figures.curves import curves_figure
from tcm.figures.embedding import embedding_figure
from tcm.figures.mechanisms import mechanisms_figure
from tcm.figures.svg import format_of, write_figure
from tcm.mechanisms.gallery import run_galleries
from tcm.training.device import Device


def write(draw: Callable[[], Figure], out: Path, quiet: bool) -> int:
    """Draws and writes the figure; a file name that cannot be used is found before the work."""
    format_of(out)
    write_figure(draw(), out)
    if not quiet:
        print(out)
    return 0


def mechanisms(
    run: Path, out: Path | None = None, images: int = 6, device: Device = "auto", quiet: bool = False
) -> int:
    """Draw a few images of both domains and what every mechanism makes of them, the winner outlined in red.

    Args:
        run: The folder of a finished run of tcm mechanisms.
        out: File for the figure: png, svg or pdf. Default: mechanisms.png inside the run.
        images: Images of each domain.
        device: Where to compute.
        quiet: Print nothing.
    """
    return write(
        lambda: mechanisms_figure(run_galleries(run, images, device, quiet)), out or run / "mechanisms.png", quiet
    )


def embedding(
    first: Path, second: Path, out: Path = Path("embedding.png"), device: Device = "auto", quiet: bool = False
) -> int:
    """Draw the features of both domains under two runs by t-SNE, with each run's proxy A-distance (Figure 7).

    The same images for both runs: of the first 15 classes, 750 of each domain at most.

    Args:
        first: The folder of a finished run of tcm train.
        second: Another one, on the same data.
        out: File for the figure: png, svg or pdf.
        device: Where to compute.
        quiet: Print nothing.
    """
    return write(lambda: embedding_figure(embed_runs([first, second], device, quiet)), out, quiet)


def activation(
    first: Path,
    second: Path,
    out: Path = Path("activation.png"),
    images: int = 6,
    device: Device = "auto",
    quiet: bool = False,
) -> int:
    """Draw where two runs look in target images that one of them gets right and the other wrong (Figure 8).

    Half of the images are right in the first run, half in the second. Labels only choose what is shown: without them
    it is images on which the runs disagree. Of a run that uses counterfactuals the part of each is shown too.

    Args:
        first: The folder of a finished run of tcm train.
        second: Another one, on the same data.
        out: File for the figure: png, svg or pdf.
        images: Target images.
        device: Where to compute.
        quiet: Print nothing.
    """
    return write(lambda: activation_figure(compare_runs([first, second], images, device, quiet)), out, quiet)


def accuracy(runs: tuple[Path, ...], out: Path = Path("accuracy.png"), quiet: bool = False) -> int:
    """Draw the target accuracy against the steps of several runs of one task; seeds of a method are one line.

    Args:
        runs: Folders of finished runs of tcm train, on the same data.
        out: File for the figure: png, svg or pdf.
        quiet: Print nothing.
    """
    return write(lambda: curves_figure(accuracy_curves(runs), percent=True, up="target accuracy"), out, quiet)


def k(runs: tuple[Path, ...], out: Path = Path("k.png"), quiet: bool = False) -> int:
    """Draw the target accuracy of finished tcm runs against their number of mechanisms k (Table 4, Figure 6).

    Args:
        runs: Folders of finished runs of tcm train tcm with several k; each task and configuration is a line, seeds
            are a component.
        out: File for the figure: png, svg or pdf.
        quiet: Print nothing.
    """

    def draw() -> Figure:
        curves = k_curves(runs)
        numbers = sorted({int(k) for line in curves.values() for k in line.at})
        along = "k, the number of mechanisms"
        return curves_figure(curves, percent=True, along=along, up="target accuracy, last iterate", ticks=numbers)

    return write(draw, out, quiet)
