from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from PIL import Image

from tcm.errors import InputError
from tcm.figures.mechanisms import mechanisms_figure
from tcm.figures.svg import write_figure
from tcm.mechanisms.gallery import Gallery
from tcm.mechanisms.pair import Side


def gallery(origin: Side = "source", rows: int = 3, k: int = 4, side: int = 8, **changed) -> Gallery:
    random = np.random.default_rng(0)
    originals = random.integers(0, 256, (rows, side, side, 3), dtype=np.uint8)
    made = random.integers(0, 256, (rows, k, side, side, 3), dtype=np.uint8)
    winner = np.arange(rows) % k
    found = Gallery(origin, "photos", "drawings", originals, made, winner, ["cup"] * rows)
    return found._replace(**changed)


def test_a_row_an_image_and_the_winner_outlined():
    figure = mechanisms_figure([gallery(), gallery("target")])
    assert len(figure.axes) == 2
    for axes in figure.axes:
        assert len(axes.get_images()) == 3 * (1 + 4)
        frames = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        # The winners of the three rows are mechanisms 1, 2 and 3: one column and one row further each.
        places = np.array([frame.get_xy() for frame in frames])
        assert np.allclose(np.diff(places, axis=0), 1)
        assert places[0, 0] > 1  # not the original
    first, second = ([text.get_text() for text in axes.texts] for axes in figure.axes)
    assert first[:4] == ["source to target", "photos → drawings", "original", "$M_{1}$"]
    assert second[0] == "target to source"
    assert "$M_{4}^{-1}$" in second


def test_the_longest_class_names_stay_within_the_figure():
    figure = mechanisms_figure(
        [gallery(classes=["Alarm_Clock", "File_Cabinet", "Webcam"]), gallery("target", classes=["Alarm_Clock"] * 3)]
    )
    FigureCanvasAgg(figure).draw()
    for number, axes in enumerate(figure.axes):
        names = [text for text in axes.texts if text.get_text().startswith(("Alarm", "File", "Web"))]
        lefts = [text.get_window_extent().x0 for text in names]
        assert len(lefts) == 3
        # The left half is the first gallery's, the right half the second's.
        assert min(lefts) > (0 if number == 0 else axes.get_window_extent().x0 - 5)


def test_small_images_are_drawn_pixel_by_pixel():
    small, large = (mechanisms_figure([gallery(side=side)]).axes[0].get_images()[0] for side in (32, 128))
    assert (small.get_interpolation(), large.get_interpolation()) == ("nearest", "antialiased")


@pytest.mark.filterwarnings("error")
def test_any_name_and_number_of_mechanisms_can_be_drawn(tmp_path: Path):
    odd = gallery(rows=1, k=1, classes=["$x\n" * 40], domain="<b>" * 40, other="$y$")
    for name in ("a.png", "b.svg", "c.PDF"):
        write_figure(mechanisms_figure([odd, gallery(k=9)]), tmp_path / name)
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 1000


def test_the_same_figure_is_the_same_file(tmp_path: Path):
    for name in ("a.png", "b.png", "a.svg", "b.svg"):
        write_figure(mechanisms_figure([gallery()]), tmp_path / "new" / name)
    for kind in ("png", "svg"):
        first, second = ((tmp_path / "new" / f"{name}.{kind}").read_bytes() for name in "ab")
        assert first == second


def test_files_of_no_known_kind_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"x\.tiff, which is not a figure file; end it in \.png, \.svg, \.pdf"):
        write_figure(mechanisms_figure([gallery()]), tmp_path / "x.tiff")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file cannot be made"):
        write_figure(mechanisms_figure([gallery()]), tmp_path / "file" / "x.png")
