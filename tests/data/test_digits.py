import numpy as np
import pytest

from tcm.data import digits as made
from tcm.data.task import Task


@pytest.fixture(scope="module")
def source() -> made.Digits:
    return made.domain("source")


@pytest.fixture(scope="module")
def target() -> made.Digits:
    return made.domain("target")


def test_the_domains_share_no_digit_and_leave_none_out(source: made.Digits, target: made.Digits):
    assert sorted([*source.numbers, *target.numbers]) == list(range(1797))
    assert source.images.shape == (898, 32, 32, 3)
    assert source.images.dtype == np.uint8
    assert (np.bincount(source.labels) > 60).all()


def test_the_data_is_always_the_same(source: made.Digits):
    again = made.domain("source")
    assert all(np.array_equal(a, b) for a, b in zip(source, again, strict=True))


def test_temperature_tells_the_class_in_the_source_only(source: made.Digits, target: made.Digits):
    def explained(domain: made.Digits, factor: str) -> float:
        """Share of the factor's variance between classes."""
        values = domain.factors[:, made.FACTORS.index(factor)]
        means = np.array([values[domain.labels == c].mean() for c in range(10)])
        return float(means[domain.labels].var() / values.var())

    assert explained(source, "temperature") > 0.7
    assert explained(target, "temperature") < 0.05
    for factor in ("brightness", "exposure", "sharpness"):
        assert explained(source, factor) < 0.05


def test_every_factor_differs_between_the_domains(source: made.Digits, target: made.Digits):
    gap = np.abs(source.factors.mean(axis=0) - target.factors.mean(axis=0))
    assert (gap > [0.1, 0.3, 0.1, 0.8]).all()


@pytest.mark.parametrize(
    ("factor", "change", "measure"),
    [
        ("brightness", 0.1, lambda x: x.mean()),
        ("exposure", 0.3, lambda x: x.std(axis=(1, 2)).mean()),
        ("temperature", 0.5, lambda x: (x[..., 0] - x[..., 2]).mean()),
        ("sharpness", 0.5, lambda x: np.abs(np.diff(x, axis=1)).mean()),
    ],
)
def test_a_factor_moves_what_its_name_says(factor: str, change: float, measure):
    rng = np.random.default_rng(0)
    shapes = rng.random((20, 32, 32)).round()
    factors = np.tile([0.0, 0.7, 0.0, -1.0], (20, 1))
    noise = np.zeros((20, 32, 32, 3))
    moved = factors.copy()
    moved[:, made.FACTORS.index(factor)] += change
    before, after = (measure(made.render(shapes, f, noise).astype(float)) for f in (factors, moved))
    assert after > before + 1


def test_the_ceiling_shows_source_digits_in_target_style(source: made.Digits):
    ceiling = made.domain("source", style="target")
    assert np.array_equal(ceiling.numbers, source.numbers)
    assert ceiling.factors[:, 3].mean() < -1


def test_the_factors_lie_beside_the_images_and_not_in_the_batch(digits: Task):
    extra = digits.source.extra()
    assert extra["factors"].shape == (len(digits.source), 4)
    assert [str(name) for name in extra["names"]] == ["brightness", "exposure", "temperature", "sharpness"]
