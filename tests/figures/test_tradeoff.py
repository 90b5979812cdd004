from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tcm.analysis.tradeoff import Effort, Tradeoff
from tcm.figures.svg import write_figure
from tcm.figures.tradeoff import tradeoff_figure
from tcm.results.identity import Spread


def found(memory: bool, count: int = 20) -> Tradeoff:
    random = np.random.default_rng(0)
    efforts = [
        Effort(
            f"method-{number}",
            Spread(*random.uniform(50, 60, 1), deviation=1.0, seeds=3),
            random.uniform(1, 30),
            float(random.uniform(4, 20)) if memory and number else None,
        )
        for number in range(count)
    ]
    return Tradeoff("Office-Home", "$A>C", "NVIDIA H200", efforts)


def test_a_point_per_method_in_each_panel():
    figure = tradeoff_figure(found(memory=True))
    minutes, memory = figure.axes
    assert [len(minutes.texts), len(memory.texts)] == [20, 19]  # one method has no memory
    assert {text.get_text() for text in minutes.texts} == {f"method-{number}" for number in range(20)}
    assert "NVIDIA H200" in minutes.get_xlabel()
    assert "memory" in memory.get_xlabel()


def test_without_memory_there_is_one_panel_that_says_so():
    figure = tradeoff_figure(found(memory=False))
    assert len(figure.axes) == 1
    assert "no panel of GPU memory" in figure.axes[0].get_xlabel()


def test_labels_do_not_cover_each_other():
    figure = tradeoff_figure(found(memory=True))
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.filterwarnings("error")
def test_a_single_method_can_be_drawn(tmp_path: Path):
    write_figure(tradeoff_figure(found(memory=False, count=1)), tmp_path / "figure.png")


@pytest.mark.filterwarnings("error")
def test_methods_that_took_equally_long_can_be_drawn(tmp_path: Path):
    both = found(memory=False, count=2)
    equal = [one._replace(minutes=1 / 60) for one in both.efforts]
    write_figure(tradeoff_figure(both._replace(efforts=equal)), tmp_path / "figure.png")
