import numpy as np
import pytest

from tcm.figures.confusion import confusion_figure
from tcm.figures.svg import inline_svg


def texts(classes: int) -> list[str]:
    matrix = np.diag(np.full(classes, 777))
    return [text.get_text() for text in confusion_figure(matrix, [f"c{i}" for i in range(classes)]).axes[0].texts]


def test_few_classes_show_their_counts_and_empty_cells_stay_empty():
    assert texts(10) == ["777"] * 10


def test_many_classes_show_no_counts():
    assert texts(65) == []


def test_names_stand_along_both_axes_until_they_no_longer_fit():
    axes = confusion_figure(np.eye(65), [f"c{i}" for i in range(65)]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"c{i}" for i in range(65)]
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"c{i}" for i in range(65)]
    assert confusion_figure(np.eye(100), [f"c{i}" for i in range(100)]).axes[0].get_yticklabels() == []


@pytest.mark.filterwarnings("error")
def test_any_name_can_be_drawn():
    svg = inline_svg(confusion_figure(np.eye(4), ["<b>&", "$x", "new\nline", "日" * 50]), "name", "d")
    assert "&lt;b&gt;&amp;" in svg
    assert "$x" in svg
    assert "new\\nline" in svg


def test_a_class_without_images_is_an_empty_row():
    figure = confusion_figure(np.array([[1, 1], [0, 0]]), ["a", "b"])
    assert np.isfinite(figure.axes[0].get_images()[0].get_array()).all()  # pyright: ignore
