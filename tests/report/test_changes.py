"""What mechanisms do, in words."""

import numpy as np
import pytest

from tcm.report.changes import described, image_changes

RAMP = np.linspace(60, 180, 32)
GREY = np.stack([np.tile(RAMP, (32, 1))] * 3, axis=-1)[None].astype(np.uint8)
COLOURED = np.stack([np.tile(RAMP + tint, (32, 1)) for tint in (40, 0, -40)], axis=-1)[None].astype(np.uint8)
NOISE = np.random.default_rng(0).integers(60, 180, (1, 32, 32, 1)).repeat(3, axis=-1).astype(np.uint8)


def test_measurements_have_the_known_values():
    found = image_changes(GREY, GREY - 51)
    assert found.brightness == pytest.approx(-0.2)
    assert found.pixels == pytest.approx(0.2)
    assert (found.colour, found.red, found.blue) == pytest.approx((0, 0, 0))
    assert (found.contrast, found.likeness) == pytest.approx((0, 1))
    half = image_changes(GREY, (GREY // 2 + 60).astype(np.uint8))
    assert half.contrast == pytest.approx(np.log(0.5), abs=0.02)
    assert half.sharpness == pytest.approx(0, abs=0.03)  # edges relative to the contrast
    grey = image_changes(COLOURED, GREY)
    assert grey.colour == pytest.approx(-80 / 255, abs=0.01)
    assert grey.red == pytest.approx(-40 / 255, abs=0.01)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (GREY, GREY, "hardly any change"),
        (GREY, GREY - 51, "much darker"),
        (GREY, GREY + 20, "brighter"),
        (GREY, GREY + 10, "slightly brighter"),
        (GREY, 240 - GREY, "light and dark swapped"),
        (COLOURED, GREY, "much less colour, much bluer, greener"),
        (GREY, (GREY // 2 + 60).astype(np.uint8), "much less contrast"),
        (NOISE, (NOISE // 2 + np.roll(NOISE, 1, axis=2) // 2).astype(np.uint8), "less contrast, slightly smoother"),
        (NOISE, np.roll(NOISE, 7, axis=2), "other shapes"),
    ],
)
def test_words(before: np.ndarray, after: np.ndarray, words: str):
    assert described(image_changes(before, after)) == words
