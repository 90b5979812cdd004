"""Draws the estimate of every known case against the truth, as docs/results/estimates.md shows it.

python benchmarks/estimate_figure.py --out docs/images/estimates.png
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from estimate_fit import cases_of, left_out_values
from estimates import read_rows
from matplotlib import pyplot as plt

from tcm.estimation.known_cases import combinations

MARKS = {"digits": ("#0072b2", "o"), "photographs": ("#d55e00", "^")}


def main() -> None:
    """Draws the combination that every run can have; the task of a case had no part in fitting it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file for the figure")
    out = parser.parse_args().out
    matplotlib.use("agg")
    chosen = combinations()[-1]
    cases = cases_of(read_rows())
    values = left_out_values(cases, list(chosen.weights))
    truth = np.array([case["truth"] for case in cases])
    figure, axes = plt.subplots(figsize=(5.2, 5.2), layout="constrained")
    width = 100 * chosen.half_width
    axes.fill_between([0, 100], [-width, 100 - width], [width, 100 + width], color="#8884", lw=0, label="interval")
    axes.plot([0, 100], [0, 100], color="#555", lw=1)
    for kind, (colour, mark) in MARKS.items():
        chosen_kind = np.array([case["kind"] == kind for case in cases])
        label = f"{kind}, {chosen_kind.sum()} runs"
        points = 100 * values[chosen_kind], 100 * truth[chosen_kind]
        axes.scatter(*points, s=16, marker=mark, color=colour, alpha=0.6, lw=0, label=label)
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal", xlabel="estimate, %", ylabel="target accuracy, %")
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
