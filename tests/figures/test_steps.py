import numpy as np
import pytest

from tcm.figures.steps import spaced


def test_names_keep_their_order_and_their_distance():
    assert spaced([0.5, 0.1, 0.9], 0.1) == pytest.approx([0.5, 0.1, 0.9])
    assert spaced([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    crowded = np.array(spaced([0.2, 0.21, 0.19, 0.9, 0.3], 0.1))
    assert np.diff(np.sort(crowded)).min() == pytest.approx(0.1)
    assert crowded.argsort().tolist() == [2, 0, 1, 4, 3]
    assert spaced([], 0.1) == []
