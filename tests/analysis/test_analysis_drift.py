"""The numbers behind the drift page, on arrays small enough to check by hand."""

import numpy as np
import pytest

from gprune.analysis import drift
from gprune.pruning.ranking import ranks
from gprune.records import RankDrift, UnitScores


def a_drift(magnitude: np.ndarray, resample: float = 0.0, correlation: float = 0.5) -> RankDrift:
    layers = len(magnitude)
    same = np.full(magnitude.shape, resample)
    rho = np.full(layers, correlation)
    return RankDrift(magnitude, magnitude, magnitude, same, same, magnitude, rho, rho, rho, rho)


def scores(values: np.ndarray) -> UnitScores:
    heads = np.ones((len(values), 1))
    return UnitScores("flap", "text", values, heads, heads)


def test_shares_sum_to_one_hundred_and_the_last_bin_holds_one():
    found = drift.shares(np.array([[0.0, 0.05, 0.5, 1.0]]), 10)
    np.testing.assert_allclose(found, [50, 0, 0, 0, 0, 25, 0, 0, 0, 25])


def test_shares_by_bin_and_layer():
    curves = drift.distributions(a_drift(np.array([[0.0, 0.25, 0.75, 1.0]])), 4)
    table = drift.distribution_table(curves)
    np.testing.assert_allclose(table["drift from"], [0, 0.25, 0.5, 0.75])
    np.testing.assert_allclose(table["A | B, % of neurons"], [25, 25, 0, 50])
    np.testing.assert_allclose(table["A re-sampled, % of neurons"], [100, 0, 0, 0])
    record = a_drift(np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert [curve.median for curve in drift.distributions(record, 5, layer=1)] == [1.0, 1.0, 0.0, 0.0]
    assert drift.distributions(record, 5)[0].median == 0.5
    assert drift.middle(np.array([np.nan, 0.2, 0.4])) == pytest.approx(0.3)
    assert np.isnan(drift.middle(np.array([np.nan])))
    matrix = drift.by_layer(np.array([[0.0, 0.0, 0.9, 0.9], [0.1, 0.1, 0.1, 0.1]]), 2)
    np.testing.assert_allclose(matrix, [[50, 50], [100, 0]])


def test_joint_ranks_put_equal_orders_on_the_diagonal():
    values = np.array([3.0, 1.0, 2.0, 5.0])
    np.testing.assert_array_equal(drift.joint_ranks(values, values * 10, 4), np.eye(4))
    flipped = drift.joint_ranks(values, -values, 4)
    np.testing.assert_array_equal(flipped, np.eye(4)[::-1])
    assert drift.joint_ranks(np.array([2.0]), np.array([7.0]), 3).sum() == 1
    assert drift.joint_ranks(np.ones(5), np.ones(5), 3).max() == 5


def test_top_drifting_breaks_ties_by_layer_and_neuron():
    magnitude = np.array([[0.5, 0.9, 0.5], [0.9, 0.1, 0.5]])
    first, second = scores(np.array([[1.0, 2, 3], [6, 5, 4]])), scores(np.array([[3.0, 1, 2], [4, 5, 6]]))
    table = drift.top_drifting(a_drift(magnitude), first, second, 4)
    assert list(zip(table["layer"], table["neuron"], strict=True)) == [(0, 1), (1, 0), (0, 0), (0, 2)]
    np.testing.assert_allclose(table["rank on A"], ranks(first.ffn)[[0, 1, 0, 0], [1, 0, 0, 2]] / 2)
    np.testing.assert_allclose(table["score on B"], [1, 4, 3, 2])
    one = np.array([[0.0]])
    assert len(drift.top_drifting(a_drift(one), scores(one), scores(one), 50)) == 1
    table = drift.layer_table(a_drift(np.array([[0.1, 0.3], [0.5, 0.5]]), resample=0.02))
    np.testing.assert_allclose(table["median drift A|B"], [0.2, 0.5])
    np.testing.assert_allclose(table["median drift, A re-sampled"], [0.02, 0.02])


@pytest.mark.parametrize(
    ("cross", "floor", "words"),
    [
        (0.4, 0.1, "4.0 times as far"),
        (0.1, 0.1, "hardly more"),
        (0.4, 0.0, "more than 40.0 % of the ranking"),
    ],
)
def test_headline_measures_against_the_floor(cross, floor, words):
    curves = drift.distributions(a_drift(np.full((2, 5), cross), floor), 10)
    assert words in drift.headline(curves)
