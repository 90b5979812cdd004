from pathlib import Path

import numpy as np
import pytest

from tcm.analysis.grad_cam import ActivationComparison, Maps
from tcm.figures.activation import activation_figure, upsampled
from tcm.figures.svg import write_figure


def maps(title: str, views: int, predicted: list[str]) -> Maps:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (views, len(predicted), 16, 16, 3), dtype=np.uint8)
    return Maps(title, predicted, images, random.normal(size=(views, len(predicted), 4, 4)).astype(np.float32))


def comparison(true: list[str], views: int = 3) -> ActivationComparison:
    return ActivationComparison(
        (maps("dann", 1, ["cup", "hat"]), maps("tcm", views, ["hat", "hat"])), true, "Of 9 images all."
    )


def test_the_image_both_runs_and_the_views_stand_in_a_row():
    axes = activation_figure(comparison(["cup", "cup"])).axes[0]
    # The image; an image and a map for each of two runs and for each of three views.
    assert len(axes.get_images()) == 2 * (1 + 2 * (2 + 3))
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if text in ("✓ cup", "✗ hat", "✗ cup", "✓ hat")][:2] == ["✓ cup", "✗ hat"]
    assert "parts of tcm" in texts
    assert "parts of dann" not in texts


def test_three_runs_and_images_of_the_source():
    runs = tuple(maps(name, 1, ["cup", "hat", "hat"]) for name in ("gvb", "baseline", "tcm"))
    figure = activation_figure(ActivationComparison(runs, ["cup", "cup", "hat"], "", sources=1))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert len(axes.get_images()) == 3 * (1 + 2 * 3)
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if text in ("source", "target")] == ["source", "target", "target"]
    heads = {text.get_text(): text.get_window_extent() for text in axes.texts}
    assert heads["gvb"].x1 < heads["baseline"].x0 < heads["baseline"].x1 < heads["tcm"].x0


@pytest.mark.parametrize("views", [1, 4])
def test_the_notes_fit_into_the_figure_below_the_images(views: int):
    found = comparison(["cup", "cup"], views)._replace(counts="Of 900 images " + 20 * "very many words ")
    figure = activation_figure(found)
    figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in figure.axes[0].texts}
    notes = [box for text, box in boxes.items() if "very many" in text or "Grad-CAM" in text or "speaks" in text]
    assert len(notes) > 2
    assert all(box.x1 < figure.bbox.x1 and box.y0 > 0 for box in notes)
    assert max(box.y1 for box in notes) < boxes["✗ hat"].y0
    assert len({box.y0 for box in notes}) == len(notes)


def test_runs_of_one_method_are_told_apart_by_titles_that_do_not_meet():
    runs = (maps("tcm, office-home-k4-s0", 1, ["cup"]), maps("tcm, office-home-k5-s1", 1, ["hat"]))
    figure = activation_figure(ActivationComparison(runs, ["cup"], ""))
    figure.draw_without_rendering()
    texts = {text.get_text(): text.get_window_extent() for text in figure.axes[0].texts}
    assert "tcm" in texts
    assert texts["office-home-k4-s0"].x1 < texts["office-home-k5-s1"].x0


def test_without_labels_nothing_is_called_right_or_wrong():
    texts = [text.get_text() for text in activation_figure(comparison(["", ""])).axes[0].texts]
    assert not [text for text in texts if "✓" in text or "✗" in text]
    assert texts.count("unlabelled") == 2


def test_the_views_add_up_and_what_speaks_against_the_class_is_left_out():
    found = maps("tcm", 2, ["cup"])._replace(maps=np.array([[[[1.0, -3.0]]], [[[2.0, 1.0]]]], dtype=np.float32))
    assert found.combined.tolist() == [[[3.0, 0.0]]]


def test_a_map_is_as_large_as_its_image():
    assert upsampled(np.full((2, 2), 0.25, dtype=np.float32), 6).tolist() == [[0.25] * 6] * 6


@pytest.mark.filterwarnings("error")
def test_the_same_figure_is_the_same_file_in_every_format(tmp_path: Path):
    for kind in ("png", "svg", "pdf"):
        for name in ("a", "b"):
            odd = comparison(["$x_\n", ""], views=1)
            odd.runs[1].maps[:] = 0  # a map of nothing
            write_figure(activation_figure(odd), tmp_path / f"{name}.{kind}")
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
