"""What each `tcm figure` command does. Their signatures are the options, as those of `commands.py`."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from tcm.embedding import embed_runs
from tcm.figures.embedding import embedding_figure
from tcm.figures.mechanisms import mechanisms_figure
from tcm.figures.svg import format_of, write_figure
from tcm.mechanisms.gallery import run_galleries

Device = Literal["auto", "cpu", "cuda"]


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
