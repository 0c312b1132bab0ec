"""Rank drift against loops over Eq. 1 and the appendix."""

import numpy as np
import pytest
from scipy import stats

from gprune.pruning.drift import match_scale, rank_drift
from gprune.records import UnitScores


def unit_scores(seed, neurons=17, levels=None):
    generator = np.random.default_rng(seed)
    shape = (3, neurons)
    ffn = generator.integers(0, levels, shape).astype(float) if levels else generator.random(shape)
    return UnitScores("flap", "t", ffn, np.ones((3, 2)), np.ones((3, 4)))


def loop_signed(first, second):
    """(r_A(i) - r_B(i)) / (N - 1), ranks by counting."""
    drift = np.zeros(first.shape)
    for layer in range(len(first)):
        for i in range(first.shape[1]):
            rank = [
                sum(s < scores[layer, i] for s in scores[layer])
                + 0.5 * (sum(s == scores[layer, i] for s in scores[layer]) - 1)
                for scores in (first, second)
            ]
            drift[layer, i] = (rank[0] - rank[1]) / (first.shape[1] - 1)
    return drift


def make(levels=None):
    a, b, a1, a2, b1, b2 = (unit_scores(seed, levels=levels) for seed in range(6))
    return rank_drift(a, b, (a1, a2), (b1, b2)), (a, b, a1, a2, b1, b2)


@pytest.mark.parametrize("levels", [None, 4])
def test_drift_is_equation_one(levels):
    drift, (a, b, a1, a2, b1, b2) = make(levels)
    np.testing.assert_allclose(drift.signed, loop_signed(a.ffn, b.ffn), rtol=1e-12, atol=1e-15)
    for magnitude, correlation, first, second in (
        (drift.magnitude, drift.correlation, a, b),
        (drift.half, drift.correlation_half, a1, b1),
        (drift.resample_primary, drift.correlation_primary, a1, a2),
        (drift.resample_auxiliary, drift.correlation_auxiliary, b1, b2),
    ):
        np.testing.assert_allclose(magnitude, np.abs(loop_signed(first.ffn, second.ffn)), rtol=1e-12, atol=1e-15)
        expected = [stats.spearmanr(*rows).statistic for rows in zip(first.ffn, second.ffn, strict=True)]
        np.testing.assert_allclose(correlation, expected, rtol=1e-12)


def test_scaled_drift_has_the_spread_of_the_magnitude():
    drift, _ = make()
    for layer in range(3):
        signed, magnitude = drift.signed[layer], drift.magnitude[layer]
        expected = [value * np.std(magnitude) / np.std(signed) for value in signed]
        np.testing.assert_allclose(drift.scaled[layer], expected, rtol=1e-12)
    np.testing.assert_allclose(drift.scaled.std(axis=1), drift.magnitude.std(axis=1), rtol=1e-12)


def test_where_nothing_drifts():
    a = unit_scores(0)
    drift = rank_drift(a, a, (a, a), (a, a))
    for values in (drift.magnitude, drift.signed, drift.scaled, drift.half, drift.resample_primary):
        np.testing.assert_array_equal(values, 0)
    np.testing.assert_allclose(drift.correlation, 1, rtol=1e-12)
    single = unit_scores(0, neurons=1)
    drift = rank_drift(single, single, (single, single), (single, single))
    np.testing.assert_array_equal(drift.magnitude, 0)
    np.testing.assert_array_equal(drift.scaled, 0)
    assert np.isnan(drift.correlation).all()
    signed = np.array([[0.0, 0.0], [0.5, -0.5]])
    np.testing.assert_array_equal(match_scale(signed, np.abs(signed)), [[0, 0], [0, 0]])
