"""Agreement of partitions against scikit-learn, brute force and known values."""

from itertools import permutations

import numpy as np
import pytest
from made_records import a_partition
from sklearn.metrics import adjusted_rand_score

from gprune.pruning.modules.agreement import adjusted_rand_index, compare, contingency, matched_overlap


@pytest.mark.parametrize(("units", "modules"), [(13, 3), (768, 21), (11008, 60), (5, 5), (40, 1)])
def test_adjusted_rand_index_equals_scikit_learn(units, modules):
    rng = np.random.default_rng(units)
    first = rng.integers(0, modules, units)
    for share in (0.0, 0.3, 1.0):
        second = np.where(rng.random(units) < share, rng.integers(0, modules + 2, units), first)
        expected = adjusted_rand_score(first, second)
        assert adjusted_rand_index(first, second) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_adjusted_rand_index_of_trivial_and_of_large_partitions():
    together, alone = np.zeros(6, int), np.arange(6)
    assert adjusted_rand_index(together, together) == 1.0
    assert adjusted_rand_index(alone, alone) == 1.0
    assert adjusted_rand_index(together, alone) == 0.0
    assert adjusted_rand_index(np.zeros(1, int), np.ones(1, int)) == 1.0
    first = np.repeat(np.arange(2), 200_000)
    assert adjusted_rand_index(first, 1 - first) == 1.0


@pytest.mark.parametrize(("k", "j"), [(4, 4), (3, 5), (5, 3), (1, 4)])
def test_matched_overlap_is_the_best_of_all_matchings(k, j):
    rng = np.random.default_rng(k * 10 + j)
    first, second = rng.permutation(np.arange(60) % k), rng.permutation(np.arange(60) % j)
    table = contingency(first, second)
    table = table if k <= j else table.T
    best = max(sum(table[i, c] for i, c in enumerate(p)) for p in permutations(range(max(k, j)), min(k, j)))
    assert matched_overlap(first, second) == pytest.approx(best / 60, rel=1e-12)


def test_partitions_of_different_units_are_refused():
    with pytest.raises(ValueError, match="do not describe the same units"):
        adjusted_rand_index(np.zeros(3, int), np.zeros(4, int))
    with pytest.raises(ValueError, match="choose two of the same model"):
        compare(a_partition([[0, 0, 1]]), a_partition([[0, 1]]))


def test_compare_is_per_layer():
    first = a_partition([[0, 0, 1, 1], [0, 1, 0, 1]])
    second = a_partition([[1, 1, 0, 0], [0, 0, 1, 1]])
    indices, overlaps = compare(first, second)
    np.testing.assert_allclose(indices, [1.0, adjusted_rand_score([0, 1, 0, 1], [0, 0, 1, 1])], rtol=1e-12)
    np.testing.assert_allclose(overlaps, [1.0, 0.5])
