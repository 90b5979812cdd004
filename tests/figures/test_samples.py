import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tcm.data.samples import VIEWS, SampleViews
from tcm.figures.samples import samples_figure


@pytest.mark.filterwarnings("error")
def test_a_row_per_image_with_its_views():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1 + 2 * VIEWS, 8, 8, 3), dtype=np.uint8)
    one = SampleViews("photos", ["cup", ""], pixels[:, 0], pixels[:, 1 : 1 + VIEWS], pixels[:, 1 + VIEWS :])
    figure = samples_figure([one, one._replace(domain="[x] $y", classes=["$1", "a very long name"])])
    FigureCanvasAgg(figure).draw()
    assert len(figure.subfigs) == 2
    for block in figure.subfigs:
        shown = [np.asarray(axes.get_images()[0].get_array()) for axes in block.axes]
        assert len(shown) == 2 * (1 + 2 * VIEWS)
        assert all(np.array_equal(a, b) for a, b in zip(shown, pixels.reshape(-1, 8, 8, 3), strict=True))
        heads = [axes.get_title(loc="left") for axes in block.axes if axes.get_title(loc="left")]
        assert heads == ["as stored", "weak views", "strong views"]
    assert [axes.get_ylabel() for axes in figure.subfigs[0].axes if axes.get_ylabel()] == ["cup"]
