import numpy as np

from tcm.data.digits import FACTORS
from tcm.figures.factors import factors_figure
from tcm.figures.svg import inline_svg
from tcm.mechanisms.disentanglement import Disentanglement

SHIFTS = Disentanglement({"target": np.array([[1.0, 0.1, 0, 0], [0, 0, -0.4, 0.2]]), "source": np.eye(4)[[0, 3]] * 0.8})


def test_every_number_stands_in_its_cell_and_the_leading_one_is_bold():
    axes = factors_figure(SHIFTS).axes[0]
    texts = {(text.get_position()[0], round(text.get_position()[1])): text for text in axes.texts[::2]}
    assert texts[0, 0].get_text() == "+0.90"
    assert texts[3, 1].get_text() == "+0.50"
    assert texts[2, 1].get_text() == "-0.20"
    assert [place for place, text in texts.items() if text.get_fontweight() == "bold"] == [(0, 0), (3, 1)]
    assert axes.texts[1].get_text() == "+1.00 / +0.80"
    assert [label.get_text() for label in axes.get_xticklabels()] == list(FACTORS)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mechanism 1", "mechanism 2"]


def test_the_wrong_way_has_a_colour_of_its_own_and_staying_put_has_none():
    shades = np.asarray(factors_figure(SHIFTS).axes[0].get_images()[0].get_array())
    right, wrong, none = shades[0, 0], shades[1, 2], shades[0, 2]
    assert right[2] > right[0]
    assert wrong[0] > wrong[2]
    assert right[3] > wrong[3] > none[3]


def test_stands_inside_a_page():
    assert "currentColor" in inline_svg(factors_figure(SHIFTS), "name", "description")
