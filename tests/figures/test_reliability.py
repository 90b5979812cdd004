import numpy as np
from matplotlib.collections import PathCollection

from tcm.figures.reliability import reliability_figure


def test_a_point_per_bin_beside_the_line_of_perfect_calibration():
    axes = reliability_figure([0.3, 0.9], [0.2, 0.7], [10, 40]).axes[0]
    perfect, curve = (np.asarray(line.get_xydata()) for line in axes.lines)
    assert perfect.tolist() == [[0, 0], [1, 1]]
    assert curve.tolist() == [[0.3, 0.2], [0.9, 0.7]]
    points = axes.collections[0]
    assert isinstance(points, PathCollection)
    small, large = points.get_sizes()
    assert large > small
