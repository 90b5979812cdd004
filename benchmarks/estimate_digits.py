"""Trains small models on digits in several styles: known cases for benchmarks/estimates.py, on a CPU.

python benchmarks/estimate_digits.py --out runs/estimate-digits
python benchmarks/estimates.py runs/estimate-digits/*/*

Each task is a pair of styles, rendered from scikit-learn's digits as the built-in data are. A fifth of the source is
held out. Repeat the command to continue.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

import tcm
from tcm.data.digits import CLASSES, Normal, Side, render, sample_factors, shapes


class Style(NamedTuple):
    """The distribution of what a domain looks like; without `factors` they are drawn."""

    factors: Side | None = None  # those of a built-in domain
    exposure: Normal = Normal(1.0, 0.1)
    blur: Normal = Normal(0.3, 0.15, 0.0)
    noise: float = 1.0
    frequent: float = 1.0  # how many times as frequent the last class is as the first


STYLES = {
    "source": Style("source"),
    "target": Style("target"),
    "plain": Style(),
    "dark": Style(exposure=Normal(0.35, 0.1)),
    "blurred": Style(blur=Normal(1.8, 0.3, 0.0)),
    "noisy": Style(noise=3.5),
    "unequal": Style("target", frequent=8.0),
}
TASKS = (
    ("source", "target"),
    ("target", "source"),
    ("plain", "target"),
    ("plain", "dark"),
    ("plain", "blurred"),
    ("dark", "noisy"),
    ("source", "plain"),
    ("plain", "unequal"),
)
# Seeds outside: an interrupted benchmark has some of everything.
RUNS = [
    *(("erm", 200, 0), ("dann", 200, 0), ("mcc", 200, 0), ("erm", 30, 0), ("atdoc", 200, 0)),
    *(("erm", 200, 1), ("dann", 200, 1), ("mcc", 200, 1), ("mcd", 200, 0), ("dann", 60, 0)),
]


def write_domain(folder: Path, half: Side, style: Style) -> Path:
    """Writes one half of the digits in a style, one folder per class."""
    if folder.exists():
        return folder
    rng = np.random.default_rng([2021, *folder.name.encode()])
    bare, labels, numbers = shapes(half)
    share = np.linspace(1, style.frequent, len(CLASSES)) / style.frequent
    kept = rng.random(len(labels)) < share[labels]
    bare, labels, numbers = bare[kept], labels[kept], numbers[kept]
    if style.factors:
        factors = sample_factors(labels, style.factors, rng)
    else:
        exposure, blur = style.exposure.sample(rng, len(labels)), style.blur.sample(rng, len(labels))
        factors = np.stack([rng.normal(0, 0.06, len(labels)), exposure, rng.normal(0, 0.3, len(labels)), -blur], axis=1)
    images = render(bare, factors, style.noise * rng.normal(size=(*bare.shape, 3)))
    for image, label, number in zip(images, labels, numbers, strict=True):
        file = folder / str(label) / f"{number:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return folder


def main() -> None:
    """Trains every method on every task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the data and the runs")
    out = parser.parse_args().out
    for method, steps, seed in RUNS:
        for source, target in TASKS:
            folders = (
                write_domain(out / "data" / f"{source}-source", "source", STYLES[source]),
                write_domain(out / "data" / f"{target}-target", "target", STYLES[target]),
            )
            run = out / f"{source}-{target}" / f"{method}-{steps}-s{seed}"
            data = {"size": 32, "crop": 32, "flip": False, "shift": 2}
            settings = {"steps": steps, "seed": seed, "held_out": 0.2, "evaluate_every": steps, "quiet": True}
            tcm.train(method, *folders, out=run, data=data, **settings)
            accuracy = json.loads((run / "evaluation.json").read_text())["target"]["accuracy"]
            print(run, f"{100 * accuracy:.1f}", flush=True)


if __name__ == "__main__":
    main()
