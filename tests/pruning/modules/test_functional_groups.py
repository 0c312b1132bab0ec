"""FANG's functional groups against a plain greedy loop, and the agreement of partitions."""

from itertools import permutations

import numpy as np
import pytest
from made_records import a_partition

from gprune.pruning.modules.agreement import compare, contingency, matched_overlap
from gprune.pruning.modules.functional_groups import functional_groups, group_profile
from gprune.system.errors import MethodError


def ordered(affinity, neurons, released):
    """Pairs of context and neuron from the largest affinity down."""
    pairs = [(k, j) for k in range(len(affinity)) for j in neurons]
    return sorted(pairs, key=lambda pair: (-affinity[pair[0]][pair[1]], -pair[0] if released else pair[0], pair[1]))


def greedy(affinity, released):
    """Most listed among the best N / (contexts + 1) are shared; then from the largest affinity down."""
    contexts, neurons = len(affinity), len(affinity[0])
    size = neurons // (contexts + 1)
    sums = [sum(row) or 1 for row in affinity]
    joint = [sum(affinity[k][j] / sums[k] for k in range(contexts)) for j in range(neurons)]
    shared = []
    while len(shared) < size:
        lists = [0] * neurons
        for row in affinity:
            free_neurons = [j for j in range(neurons) if j not in shared]
            for j in sorted(free_neurons, key=lambda j: (-row[j], j))[:size]:
                lists[j] += 1
        candidates = [j for j in range(neurons) if lists[j] == max(lists)]
        if not released:
            candidates.sort(key=lambda j: (-joint[j], j))
        shared += candidates[: size - len(shared)]
    labels = dict.fromkeys(shared, contexts)
    free = [j for j in range(neurons) if j not in labels]
    counts, spare = [0] * contexts, len(free) - contexts * size
    for _ in free:
        for k, j in ordered(affinity, [j for j in free if j not in labels], released):
            if counts[k] < size or (counts[k] == size and spare > 0):
                spare -= counts[k] == size
                counts[k] += 1
                labels[j] = k
                break
    return [labels[j] for j in range(neurons)]


def affinities(layers, contexts, neurons, seed=0, common=1.0):
    """Affinities with a part that all contexts share, so that top lists overlap."""
    generator = np.random.default_rng(seed)
    joint = generator.gamma(0.5, 1, (layers, 1, neurons)) * common
    return (joint + generator.gamma(0.5, 1, (layers, contexts, neurons))) * generator.gamma(2, 1, (layers, contexts, 1))


def assert_groups_of_the_loop(affinity, grouping):
    groups = functional_groups(affinity, grouping)
    for labels, layer in zip(groups.labels, affinity, strict=True):
        np.testing.assert_array_equal(labels, greedy(layer.tolist(), grouping == "released"))


@pytest.mark.parametrize("common", [0.0, 1.0, 20.0])
@pytest.mark.parametrize(
    ("grouping", "contexts", "neurons"),
    [("balanced", k, n) for k, n in ((7, 48), (3, 13), (2, 3), (2, 29), (5, 31), (7, 8))]
    + [("released", k, n) for k, n in ((7, 48), (3, 16), (2, 3), (2, 30))],
)
def test_groups_are_those_of_the_loop(grouping, contexts, neurons, common):
    assert_groups_of_the_loop(affinities(2, contexts, neurons, seed=neurons, common=common), grouping)


@pytest.mark.parametrize("grouping", ["balanced", "released"])
@pytest.mark.parametrize("seed", range(4))
def test_equal_affinities_are_decided_as_in_the_loop(grouping, seed):
    affinity = np.random.default_rng(seed).integers(0, 3, (2, 3, 24)).astype(float)
    affinity[0, 1] = 0
    assert_groups_of_the_loop(affinity, grouping)


def test_the_record_fits_and_a_groups_profile_is_its_context_and_widths_that_do_not_fit_are_refused():
    affinity = affinities(3, 7, 61)
    groups, again = (functional_groups(affinity, "balanced") for _ in "ab")
    assert (groups.kind, groups.profile, groups.modules) == ("functional", "none", 24)
    assert groups.labels.dtype == np.int32
    np.testing.assert_array_equal(groups.counts, 8)
    np.testing.assert_array_equal(groups.labels, again.labels)
    assert len(groups.silhouette) == len(groups.history) == 3
    assert np.isnan(groups.mixing).all() and np.isnan(groups.variation).all()
    np.testing.assert_array_equal(
        group_profile(4), [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0.25, 0.25, 0.25, 0.25]]
    )
    with pytest.raises(MethodError, match=r"width that 8 divides, but it is 1001: set baselines.fang_grouping=bal"):
        functional_groups(affinities(1, 7, 1001), "released")
    for grouping in ("balanced", "released"):
        with pytest.raises(MethodError, match=r"8 groups need .* has 7: lower contexts.count"):
            functional_groups(affinities(1, 7, 7), grouping)


def test_agreement_of_trivial_and_of_large_partitions():
    together, alone = a_partition([[0] * 6]), a_partition([list(range(6))])
    assert compare(together, together)[0].tolist() == compare(alone, alone)[0].tolist() == [1.0]
    assert compare(together, alone)[0].tolist() == [0.0]
    first = np.repeat(np.arange(2), 200_000)
    assert compare(a_partition(first[None]), a_partition(1 - first[None]))[0].tolist() == [1.0]


@pytest.mark.parametrize(("k", "j"), [(4, 4), (3, 5), (5, 3), (1, 4)])
def test_matched_overlap_is_the_best_of_all_matchings(k, j):
    rng = np.random.default_rng(k * 10 + j)
    first, second = rng.permutation(np.arange(60) % k), rng.permutation(np.arange(60) % j)
    table = contingency(first, second)
    table = table if k <= j else table.T
    best = max(sum(table[i, c] for i, c in enumerate(p)) for p in permutations(range(max(k, j)), min(k, j)))
    assert matched_overlap(first, second) == pytest.approx(best / 60, rel=1e-12)


def test_compare_is_per_layer():
    first = a_partition([[0, 0, 1, 1], [0, 1, 0, 1]])
    second = a_partition([[1, 1, 0, 0], [0, 0, 1, 1]])
    indices, overlaps = compare(first, second)
    np.testing.assert_allclose(indices, [1.0, -0.5], rtol=1e-12)
    np.testing.assert_allclose(overlaps, [1.0, 0.5])
