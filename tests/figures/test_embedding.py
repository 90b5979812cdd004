from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from tcm.analysis.embedding import Embedding
from tcm.figures.embedding import embedding_figure
from tcm.figures.svg import write_figure


def embedding(title: str = "dann", classes: int = 3, **changed) -> Embedding:
    random = np.random.default_rng(0)
    labels = np.arange(60) % classes
    names = tuple(f"cup {number}" for number in range(classes))
    found = Embedding(
        title, random.normal(size=(60, 2)), np.arange(60) >= 40, labels, names, 1.2345, ("photos", "$x$\n")
    )
    return found._replace(**changed)


def test_a_panel_a_run_with_its_distance_below():
    figure = embedding_figure([embedding(), embedding("tcm", distance=0.5)])
    assert [axes.get_title() for axes in figure.axes] == ["dann", "tcm"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["proxy A-distance 1.23", "proxy A-distance 0.50"]


def test_domains_differ_in_shape_and_fill_and_not_in_colour_alone():
    source, target = embedding_figure([embedding()]).axes[0].collections
    assert isinstance(source, PathCollection)
    assert isinstance(target, PathCollection)
    assert (len(np.asarray(source.get_offsets())), len(np.asarray(target.get_offsets()))) == (40, 20)
    circle, triangle = (len(np.asarray(kind.get_paths()[0].vertices)) for kind in (source, target))
    assert circle != triangle
    assert len(np.asarray(source.get_facecolor())) == 0
    assert len(np.asarray(target.get_facecolor())) == 1


def test_a_class_is_named_on_one_of_its_own_points():
    texts = embedding_figure([embedding()]).axes[0].texts
    assert [text.get_text() for text in texts] == ["cup 0", "cup 1", "cup 2"]
    found = embedding()
    own = found.points[(found.labels == 1) & ~found.is_target]
    assert (np.abs(own - texts[1].get_position()).sum(axis=1) == 0).any()
    assert not embedding_figure([embedding(classes=16)]).axes[0].texts


def test_names_of_classes_in_one_place_do_not_cover_each_other():
    random, names = np.random.default_rng(0), tuple(f"Alarm_Clock_{number}" for number in range(15))
    points, numbers = random.normal(size=(900, 2)), np.arange(900)
    crowded = embedding()._replace(points=points, is_target=numbers >= 600, labels=numbers % 15, classes=names)
    figure = embedding_figure([crowded, crowded])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 15
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    panel = figure.axes[0].get_window_extent()
    assert all(panel.x0 < box.x0 and box.x1 < panel.x1 for box in boxes)


@pytest.mark.filterwarnings("error")
def test_the_same_figure_is_the_same_file_in_every_format(tmp_path: Path):
    for kind in ("png", "svg", "pdf"):
        for name in ("a", "b"):
            odd = embedding("$ä_ü", labels=np.full(60, -1))
            write_figure(embedding_figure([odd, embedding()]), tmp_path / f"{name}.{kind}")
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
