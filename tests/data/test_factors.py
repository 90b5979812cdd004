import numpy as np

from tcm.data import digits
from tcm.data.factors import estimated_factors


def test_the_estimates_follow_the_stored_factors():
    """Correlation over both domains, on images that the estimators were not fitted to."""
    both = [digits.domain(side) for side in ("source", "target")]
    found = np.concatenate([estimated_factors(domain.images) for domain in both])
    stored = np.concatenate([domain.factors for domain in both])
    correlation = [np.corrcoef(found[:, i], stored[:, i])[0, 1] for i in range(4)]
    assert (np.array(correlation) > [0.97, 0.93, 0.99, 0.9]).all(), correlation
    bias = np.abs((found - stored).mean(axis=0))
    gap = np.abs(both[0].factors.mean(axis=0) - both[1].factors.mean(axis=0))
    assert (bias < 0.1 * gap).all()


def test_changing_one_factor_moves_its_own_estimate_most():
    bare, labels, _ = digits.shapes("target")
    rng = np.random.default_rng(0)
    factors = digits.sample_factors(labels, "source", rng)
    noise = rng.normal(size=(*bare.shape, 3))
    before = estimated_factors(digits.render(bare, factors, noise))
    gaps = digits.domain("target").factors.mean(axis=0) - digits.domain("source").factors.mean(axis=0)
    for factor, gap in enumerate(gaps):
        moved = factors.copy()
        moved[:, factor] += gap
        shift = (estimated_factors(digits.render(bare, moved, noise)) - before).mean(axis=0) / gaps
        assert abs(shift[factor] - 1) < 0.2
        assert np.abs(np.delete(shift, factor)).max() < 0.25
