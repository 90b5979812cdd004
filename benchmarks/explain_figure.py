"""The picture of docs/python.md: target digits, where a classifier looks, and their counterfactuals.

python examples/walkthrough.py
python benchmarks/explain_figure.py --run runs/walkthrough/fit --out docs/images/explain.png
"""

from pathlib import Path

import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

import tcm
from tcm.data import digits
from tcm.figures.svg import INK, PALETTE

# By opacity over a grey image, as in the figure of `tcm figure activation`.
HEAT = LinearSegmentedColormap.from_list("heat", [(*to_rgb(PALETTE[1]), 0.0), (*to_rgb(PALETTE[1]), 0.85)])


def show(axes: Axes, image: np.ndarray, title: str = "") -> None:
    axes.imshow(image, cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=8, color=INK, pad=2)


def main(run: Path, out: Path, images: int = 6, mechanisms: int = 2) -> None:
    """Draw the first target digits.

    Args:
        run: Folder of a fit with mechanisms.
        out: File to write.
        images: How many digits.
        mechanisms: How many of the mechanisms.
    """
    model = tcm.load(run, device="cpu")
    target = digits.domain("target")
    chosen = [int(np.flatnonzero(target.labels == number)[0]) for number in range(images)]
    pixels = target.images[chosen]
    maps, made = model.explain(pixels), model.counterfactuals(pixels)[:, :mechanisms]
    rows = ["image", "explain", *(f"mechanism {number}" for number in range(1, mechanisms + 1))]
    figure = Figure(figsize=(1.05 * images + 0.9, 1.16 * len(rows)), layout="constrained", facecolor="white")
    grid = figure.subplots(len(rows), images)
    for column, image in enumerate(pixels):
        show(grid[0, column], image, f"predicted {model.predict(image)[0]}")
        show(grid[1, column], 0.5 + 0.5 * image.mean(axis=2) / 255)
        grid[1, column].imshow(HEAT(maps[column]))
        for row, counterfactual in enumerate(made[column], start=2):
            show(grid[row, column], counterfactual, f"predicted {model.predict(counterfactual)[0]}")
    for row, name in enumerate(rows):
        grid[row, 0].set_ylabel(name, fontsize=9, color=INK)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    tyro.cli(main)
