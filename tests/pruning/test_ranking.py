"""Ranks and correlation against scipy and against loops."""

import numpy as np
import pytest
from scipy import stats

from gprune.pruning import ranking


def scores(seed, shape, levels=None):
    generator = np.random.default_rng(seed)
    return generator.integers(0, levels, shape).astype(float) if levels else generator.random(shape)


def loop_rank_within(values, labels):
    """Rank = units of the same module below, plus half of the other units that tie."""
    result = np.zeros(len(values))
    for i, (value, label) in enumerate(zip(values, labels, strict=True)):
        peers = [values[j] for j in range(len(values)) if labels[j] == label and j != i]
        result[i] = sum(other < value for other in peers) + 0.5 * sum(other == value for other in peers)
    return result


@pytest.mark.parametrize("levels", [None, 1, 2, 5])
@pytest.mark.parametrize("units", [1, 2, 13, 200])
def test_ranks_are_scipys_average_ranks_from_zero(units, levels):
    values = scores(units, (3, units), levels)
    np.testing.assert_array_equal(ranking.ranks(values), stats.rankdata(values, axis=1) - 1)


@pytest.mark.parametrize("levels", [None, 3])
def test_one_grouping_ranks_many_scores_in_both_orders(levels):
    labels = np.array([4, 1, 1, 4, 9, 4, 1, 4])
    grouped = ranking.GroupedRanks(labels)
    assert grouped.size.tolist() == [3, 4, 1] and grouped.start.tolist() == [0, 3, 7]
    for seed in range(3):
        values = scores(seed, len(labels), levels)
        by_unit = grouped.by_unit(values)
        np.testing.assert_array_equal(by_unit, loop_rank_within(values, labels))
        expected = [rank for label in (1, 4, 9) for rank in by_unit[labels == label]]
        np.testing.assert_array_equal(grouped.in_group_order(values), expected)


def unequal_groups(seed, sizes):
    """Labels of groups of given sizes, mixed."""
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


SIZES = [1, 2, 3, 40, 41, 7, 300, 1, 64, 65]


def assert_displaced_as_by_the_loop(first, second, labels):
    grouped = ranking.GroupedRanks(labels)
    ranks = [loop_rank_within(values, labels) for values in (first, second)]
    displacement = np.bincount(labels, weights=2 * np.abs(ranks[0] - ranks[1])).astype(np.int64)
    np.testing.assert_array_equal(grouped.displacement(first, second), displacement)
    np.testing.assert_array_equal(grouped.by_unit(first), ranks[0])


@pytest.mark.parametrize("levels", [None, 1, 4, 100])
@pytest.mark.parametrize(("factor", "shift"), [(1, 0), (-1, 0), (1, -0.5)])
def test_displacement_is_the_loop_for_groups_of_any_size(levels, factor, shift):
    labels = unequal_groups(1, SIZES)
    assert_displaced_as_by_the_loop(*(factor * scores(n, len(labels), levels) + shift for n in (2, 3)), labels)


def test_scores_that_differ_in_their_last_bit_are_told_apart():
    """Places in a row stand in the lowest bits while it is sorted: nothing of them may be lost by it."""
    labels = unequal_groups(4, SIZES)
    generator = np.random.default_rng(5)
    neighbours = np.nextafter(1.0, 2.0) + np.finfo(float).eps * generator.permutation(len(labels))
    steps = np.array([0.0, -0.0, 5e-324, 1e-310, np.inf, 1e308, 2.0, np.nextafter(2.0, 3.0)])
    few = generator.choice(steps, len(labels))
    for first, second in ((neighbours, few), (few, neighbours), (-few, few), (neighbours, -neighbours)):
        assert_displaced_as_by_the_loop(first, second, labels)


def test_groups_that_fill_many_blocks_are_ranked_as_scipy_does():
    labels = unequal_groups(6, [40_000, 20_000, 13, *range(200, 400)])
    first, second = scores(7, len(labels)), np.round(scores(8, len(labels)), 4)
    grouped = ranking.GroupedRanks(labels)
    by_unit, expected = grouped.by_unit(second), []
    for label in range(labels.max() + 1):
        members = labels == label
        ranked = [stats.rankdata(values[members]) for values in (first, second)]
        np.testing.assert_array_equal(by_unit[members], ranked[1] - 1)
        expected.append(2 * np.abs(ranked[0] - ranked[1]).sum())
    np.testing.assert_array_equal(grouped.displacement(first, second), expected)


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_rank_quantile_keeps_one_minus_threshold_of_a_module(size):
    quantile = ranking.rank_quantile_within(scores(size, size), np.zeros(size, int))
    assert quantile.min() == 0.5 / size
    assert quantile.max() == 1 - 0.5 / size
    for count in range(size + 1):
        assert (quantile >= 1 - count / size).sum() == count


def test_module_sizes_and_means():
    labels = np.array([0, 2, 2, 0, 2])
    np.testing.assert_array_equal(ranking.module_sizes(labels, 4), [2, 0, 3, 0])
    values = np.array([1.0, 2.0, 4.0, 5.0, 6.0])
    np.testing.assert_array_equal(ranking.module_means(values, labels, 4), [3, 0, 4, 0])


def test_spearman_of_constant_scores_is_undefined():
    assert np.isnan(ranking.spearman(np.ones((2, 5)), scores(0, (2, 5)))).all()
    assert np.isnan(ranking.spearman(np.ones(1), np.ones(1)))
