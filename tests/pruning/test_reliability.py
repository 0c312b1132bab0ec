"""RASA against loops over the equations of section 3.2."""

from itertools import combinations

import numpy as np
import pytest
from made_records import a_partition

from gprune.pruning import rasa
from gprune.records import ModuleStatistics, UnitScores
from gprune.study import ReliabilitySettings

LAYERS, NEURONS = 3, 29


def partition(seed=0, counts=(4, 1, 6)):
    generator = np.random.default_rng(seed)
    rows = [np.append(np.arange(k), generator.integers(0, k, NEURONS - k)) for k in counts]
    return a_partition([generator.permutation(row) for row in rows])


def raw(seed, levels=None):
    generator = np.random.default_rng(seed)
    shape = (LAYERS, NEURONS)
    return generator.integers(0, levels, shape).astype(float) if levels else generator.random(shape)


def unit_scores(ffn):
    return UnitScores("flap", "t", ffn, np.ones((LAYERS, 2)), np.ones((LAYERS, 4)))


def members(parts):
    """Neurons (layer, indices) of every module, in order of layer and label."""
    return [
        (layer, np.flatnonzero(parts.labels[layer] == k))
        for layer, count in enumerate(parts.counts)
        for k in range(count)
    ]


def loop_pi(scores):
    """Normalised rank of each score among these: 0 for the least, 1 for the most important."""
    ranks = [sum(other < x for other in scores) + (sum(other == x for other in scores) - 1) / 2 for x in scores]
    return [rank / max(len(scores) - 1, 1) for rank in ranks]


def loop_discrepancy(first, second, parts):
    """Mean over the module's neurons of |pi_first(i) - pi_second(i)|, ranks within the module."""
    result = []
    for layer, index in members(parts):
        pairs = zip(loop_pi(first[layer, index]), loop_pi(second[layer, index]), strict=True)
        result.append(np.mean([abs(a - b) for a, b in pairs]))
    return np.array(result)


@pytest.fixture(params=[None, 5], ids=["distinct", "ties"])
def example(request):
    parts = partition()
    a, b = raw(0, request.param), raw(1, request.param)
    halves = [[(raw(10 * d + s, request.param), raw(99 * d + s, request.param)) for s in range(3)] for d in (1, 2)]
    settings = ReliabilitySettings()
    statistics = rasa.module_statistics(unit_scores(a), unit_scores(b), parts, *halves, settings)
    return parts, a, b, halves, statistics


def test_module_drift_and_score_are_the_equations(example):
    parts, a, b, _, statistics = example
    np.testing.assert_allclose(statistics.drift, loop_discrepancy(a, b, parts), rtol=1e-12, atol=1e-15)
    means = [np.mean(a[layer, index]) for layer, index in members(parts)]
    np.testing.assert_allclose(statistics.score, means, rtol=1e-12)
    np.testing.assert_array_equal(statistics.size, [len(index) for _, index in members(parts)])
    np.testing.assert_array_equal(statistics.layer, [layer for layer, _ in members(parts)])


def test_repeatability_averages_the_discrepancy_over_the_splits(example):
    parts, _, _, halves, statistics = example
    for actual, pairs in zip((statistics.u_primary, statistics.u_auxiliary), halves, strict=True):
        expected = np.mean([loop_discrepancy(*pair, parts) for pair in pairs], axis=0)
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-15)


def test_modules_that_are_equally_repeatable_are_found_to_be():
    """Thirds and sevenths that add up to the same in another order are a tie, which rounding would break."""
    parts = partition()
    halves = [(raw(seed), raw(seed + 50)) for seed in range(12)]
    score = unit_scores(raw(0)), unit_scores(raw(1))
    both = rasa.module_statistics(*score, parts, halves, halves[::-1], ReliabilitySettings())
    np.testing.assert_array_equal(both.u_primary, both.u_auxiliary)
    exact = sum(loop_discrepancy(*pair, parts) for pair in halves) / len(halves)
    np.testing.assert_allclose(both.u_primary, exact, rtol=1e-12)


def test_standardized_scores_are_z_scores_of_the_layer():
    parts, a = partition(), raw(0) * np.array([[1e-6], [1.0], [1e6]])
    actual = rasa.mean_scores(a, parts, "standardized")
    expected = [
        np.mean([(s - np.mean(a[layer])) / np.std(a[layer], ddof=1) for s in a[layer, index]])
        for layer, index in members(parts)
    ]
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)
    a[0] = 0.1
    actual = rasa.mean_scores(a, parts, "standardized")
    np.testing.assert_array_equal(actual[: parts.counts[0]], 0)
    assert np.isfinite(actual).all()


@pytest.mark.parametrize(("shards", "count"), [(2, 1), (4, 3), (6, 10), (8, 35), (10, 126)])
def test_balanced_splits_are_all_of_them(shards, count):
    splits = rasa.balanced_splits(shards)
    assert len(splits) == count
    every = {frozenset(half) for half in combinations(range(shards), shards // 2)}
    assert {frozenset(half) for split in splits for half in split} == every
    for first, second in splits:
        assert sorted(first + second) == list(range(shards))


def loop_adapt(a, b, parts, statistics, drift_level, score_level):
    """Eqs. 8 and 9: the auxiliary score where the module is adapted and B ranks it more repeatably."""
    drift_cut, score_cut = loop_quantile(statistics.drift, drift_level), loop_quantile(statistics.score, score_level)
    scores, adapted = a.copy(), []
    for k, (layer, index) in enumerate(members(parts)):
        adapted.append(statistics.drift[k] >= drift_cut and statistics.score[k] <= score_cut)
        if adapted[-1] and statistics.u_auxiliary[k] < statistics.u_primary[k]:
            scores[layer, index] = b[layer, index]
    return scores, adapted


def loop_quantile(values, level):
    """Linear interpolation between the two order statistics around level * (n - 1)."""
    ordered = sorted(values)
    position = level * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


@pytest.mark.parametrize("levels", [(0.9, 0.9), (0.5, 0.85), (0.0, 1.0), (1.0, 1.0)])
def test_adapted_scores_are_the_equation(example, levels):
    parts, a, b, _, statistics = example
    settings = ReliabilitySettings(drift_quantile=levels[0], score_quantile=levels[1])
    result = rasa.adapt(unit_scores(a), unit_scores(b), parts, statistics, settings, seed=0)
    scores, adapted = loop_adapt(a, b, parts, statistics, *levels)
    np.testing.assert_array_equal(result.scores, scores)
    np.testing.assert_array_equal(result.adapted, adapted)
    assert result.drift_threshold == pytest.approx(loop_quantile(statistics.drift, levels[0]), rel=1e-12)
    assert result.score_threshold == pytest.approx(loop_quantile(statistics.score, levels[1]), rel=1e-12)


INDEX = np.arange(11)


def adapt_eleven(u_auxiliary=np.where(INDEX % 2, 0.1, 0.3), seed=0, **settings):  # noqa: B008
    """Drift rises and score falls with the module's index; B is more repeatable in odd modules."""
    parts, u_primary = partition(), np.full(11, 0.2)
    sizes = np.array([len(index) for _, index in members(parts)])
    table = INDEX / 10, 1 - INDEX / 10, sizes, parts.module_layer, u_primary, u_auxiliary
    scores = unit_scores(raw(0)), unit_scores(raw(1))
    return rasa.adapt(*scores, parts, ModuleStatistics(*table), ReliabilitySettings(**settings), seed)


def test_thresholds_include_the_modules_on_them():
    result = adapt_eleven(drift_quantile=0.5, score_quantile=0.3)
    np.testing.assert_array_equal(np.flatnonzero(result.adapted), [7, 8, 9, 10])
    np.testing.assert_array_equal(np.flatnonzero(result.source), [7, 9])


def test_a_tie_goes_to_the_primary_text():
    result = adapt_eleven(np.full(11, 0.2), drift_quantile=0.0, score_quantile=1.0)
    assert result.adapted.all() and not result.source.any()
    np.testing.assert_array_equal(result.scores, raw(0))


def test_random_selection_adapts_as_many_modules():
    settings = {"drift_quantile": 0.5, "score_quantile": 0.3, "selection": "random"}
    chosen = [adapt_eleven(seed=seed, **settings).adapted for seed in range(20)]
    assert {int(adapted.sum()) for adapted in chosen} == {4}
    assert len({adapted.tobytes() for adapted in chosen}) > 10
    np.testing.assert_array_equal(adapt_eleven(seed=3, **settings).adapted, chosen[3])


def test_one_module_in_all_is_its_own_quantile():
    parts = a_partition(np.zeros((1, 4)), kind="random")
    a, b = (UnitScores("flap", "t", raw(s)[:1, :4], np.ones((1, 1)), np.ones((1, 2))) for s in (0, 1))
    settings = ReliabilitySettings()
    statistics = rasa.module_statistics(a, b, parts, [(a.ffn, b.ffn)], [(a.ffn, a.ffn)], settings)
    result = rasa.adapt(a, b, parts, statistics, settings, 0)
    np.testing.assert_array_equal(result.adapted, [True])
    np.testing.assert_array_equal(result.scores, b.ffn)
