"""Scores, rank drift, adaptation and masks of experts, against loops over experts and ranks of scipy."""

import itertools

import numpy as np
import pytest
from scipy.stats import rankdata

from gprune.pruning.experts import criteria
from gprune.pruning.rasa import balanced_splits
from gprune.records.experts import LEAST_TOKENS, ExpertMasks, ExpertScores, ExpertShape, ExpertStatistics
from gprune.study import ReliabilitySettings
from gprune.system.errors import SettingsError

SHARDS, LAYERS, EXPERTS = 4, 2, 8


def statistics_of(seed: int, text: str = "A", routed: np.ndarray | None = None) -> ExpertStatistics:
    generator = np.random.default_rng(seed)
    counts = generator.integers(20, 60, (SHARDS, LAYERS, EXPERTS)) if routed is None else routed
    weights, norms = counts * generator.random(counts.shape), counts * generator.random(counts.shape) * 3
    slots = np.zeros((LAYERS, EXPERTS, 0), int)
    shards = np.array([100, 110, 120, 130])
    return ExpertStatistics(text, "f", shards, counts, weights, weights * 1.7, norms, slots, slots)


def scores_of(values, tokens=None, text: str = "A") -> ExpertScores:
    values = np.asarray(values, float)
    return ExpertScores("reap", text, values, np.full(values.shape, 99) if tokens is None else np.asarray(tokens))


def shape_of(**changes) -> ExpertShape:
    sizes = {"layers": (0, 1), "experts": EXPERTS, "top_k": 2, "groups": 1, "top_groups": 1}
    return ExpertShape(**sizes | {"expert_parameters": 10, "parameters": 1000} | changes)


@pytest.mark.parametrize("shards", [None, [1, 3]])
def test_every_criterion_equals_its_formula(shards):
    statistics, index = statistics_of(0), shards or range(SHARDS)
    tokens = sum((100, 110, 120, 130)[shard] for shard in index)
    for layer, expert in itertools.product(range(LAYERS), range(EXPERTS)):
        routed = sum(statistics.routed[s, layer, expert] for s in index)
        weighted = sum(statistics.weighted_norms[s, layer, expert] for s in index)
        norm = sum(statistics.norms[s, layer, expert] for s in index)
        expected = {"frequency": routed / tokens, "reap": weighted / routed}
        expected |= {"routed_norm": weighted / tokens, "man": norm / routed}
        for criterion, value in expected.items():
            scores = criteria.score_experts(criterion, statistics, shards)
            assert scores.values[layer, expert] == pytest.approx(value, rel=1e-12)
            assert scores.tokens[layer, expert] == routed
    empty = statistics_of(0, routed=np.zeros((SHARDS, LAYERS, EXPERTS), int))
    assert all(not criteria.score_experts(name, empty).values.any() for name in ("frequency", "reap", "man"))


def naive_drift(first: ExpertScores, second: ExpertScores) -> np.ndarray:
    result = np.full(first.values.shape, np.nan)
    for layer in range(len(result)):
        warm = [e for e in range(EXPERTS) if min(first.tokens[layer, e], second.tokens[layer, e]) >= 16]
        ranks = [rankdata([scores.values[layer, e] for e in warm]) for scores in (first, second)]
        for position, expert in enumerate(warm):
            result[layer, expert] = (ranks[0][position] - ranks[1][position]) / max(len(warm) - 1, 1)
    return result


def test_drift_equals_ranks_of_warm_experts_with_ties_averaged():
    values, tokens = np.round(np.random.default_rng(3).random((2, LAYERS, EXPERTS)), 1), np.full((LAYERS, EXPERTS), 40)
    tokens[0, 2], tokens[1, 5] = LEAST_TOKENS - 1, LEAST_TOKENS
    primary, auxiliary = scores_of(values[0], tokens), scores_of(values[1], np.full_like(tokens, 30), "B")
    halves = [(scores_of(np.roll(values[0], i, 1)), scores_of(np.roll(values[1], i, 1))) for i in (1, 3)]
    assert len(np.unique(values[0][0])) < EXPERTS
    drift = criteria.expert_drift(primary, auxiliary, *halves)
    np.testing.assert_allclose(drift.signed, naive_drift(primary, auxiliary), rtol=1e-12)
    assert np.argwhere(np.isnan(drift.signed)).tolist() == [[0, 2]] and drift.tokens_primary[0, 2] == 15
    np.testing.assert_allclose(drift.resample_primary, abs(naive_drift(*halves[0])), rtol=1e-12)
    np.testing.assert_allclose(drift.resample_auxiliary, abs(naive_drift(*halves[1])), rtol=1e-12)
    np.testing.assert_allclose(drift.half, abs(naive_drift(halves[0][0], halves[1][0])), rtol=1e-12)
    same = criteria.expert_drift(primary, primary, halves[0], halves[0])
    assert np.nanmax(same.magnitude) == 0


def test_a_layer_with_one_warm_expert_has_no_drift():
    tokens = np.zeros((LAYERS, EXPERTS), int)
    tokens[0, 3] = 50
    drift = criteria.expert_drift(*[scores_of(np.ones((LAYERS, EXPERTS)), tokens)] * 2, *[(scores_of(tokens),) * 2] * 2)
    assert drift.signed[0, 3] == 0 and np.isnan(drift.signed).sum() == LAYERS * EXPERTS - 1


def test_the_mean_of_two_texts_takes_the_warm_one():
    tokens = np.array([[20, 20, 3, 3]])
    mean = criteria.average_experts(
        scores_of([[1, 2, 3, 4]], tokens), scores_of([[5, 6, 7, 8]], tokens[:, [0, 2, 1, 3]], "B")
    )
    assert mean.values.tolist() == [[3, 2, 7, 6]] and mean.is_cold.tolist() == [[False, False, False, True]]
    assert mean.text == "A + B"


def adapted(settings: ReliabilitySettings, first: ExpertStatistics, second: ExpertStatistics, seed: int = 0):
    halves = [
        [tuple(criteria.score_experts("reap", text, part) for part in split) for split in balanced_splits(SHARDS)]
        for text in (first, second)
    ]
    scores = [criteria.score_experts("reap", text) for text in (first, second)]
    return criteria.adapt_experts(*scores, *halves, settings, seed), scores, halves


@pytest.mark.parametrize("scale", ["raw", "standardized"])
def test_adaptation_equals_the_rule_expert_by_expert(scale):
    settings = ReliabilitySettings(drift_quantile=0.3, score_quantile=0.6, score_scale=scale)
    first, second = statistics_of(6), statistics_of(22, "B")
    result, (primary, auxiliary), halves = adapted(settings, first, second)
    drift = abs(naive_drift(primary, auxiliary))
    u = [np.mean([abs(naive_drift(*pair)) for pair in pairs], axis=0) for pairs in halves]
    scores = primary.values
    if scale == "standardized":
        scores = (scores - scores.mean(1, keepdims=True)) / scores.std(1, ddof=1, keepdims=True)
    sensitive = (drift >= np.quantile(drift, 0.3)) & (drift > np.maximum(*u))
    unreliable = sensitive & (scores <= np.quantile(scores, 0.6))
    assert 0 < unreliable.sum() < sensitive.sum() < drift.size
    assert np.array_equal(result.adapted, unreliable)
    assert np.array_equal(result.from_auxiliary, unreliable & (u[1] < u[0]))
    assert 0 < result.from_auxiliary.sum() < unreliable.sum()
    assert np.array_equal(result.values, np.where(result.from_auxiliary, auxiliary.values, primary.values))
    assert np.array_equal(result.scores.tokens, np.where(result.from_auxiliary, auxiliary.tokens, primary.tokens))
    np.testing.assert_allclose(result.u_primary, u[0], rtol=1e-12)


def test_resampling_noise_and_cold_experts_are_not_adapted():
    settings = ReliabilitySettings(selection="drift", drift_quantile=0.01)
    first = statistics_of(1)
    same, _, _ = adapted(settings, first, first)
    assert not same.adapted.any()
    routed = first.routed.copy()
    routed[:, :, 4] = 3
    result, _, _ = adapted(settings, statistics_of(1, routed=routed), statistics_of(2, "B"))
    assert result.adapted.any() and not result.adapted[:, 4].any() and np.isnan(result.drift[:, 4]).all()
    cold, _, _ = adapted(settings, statistics_of(1, routed=np.ones((SHARDS, LAYERS, EXPERTS), int)), first)
    assert not cold.adapted.any() and np.isnan([cold.drift_threshold, cold.score_threshold]).all()


def test_masks_keep_the_highest_warm_scores_in_every_layer_and_group():
    values = np.array([[8, 7, 6, 5, 4, 3, 2, 1], [1, 1, 1, 1, 1, 1, 1, 1]])
    tokens = np.full(values.shape, 50)
    masks = criteria.allocate_experts("experts_reap", shape_of(), scores_of(values, tokens), 0.5)
    assert masks.experts.tolist() == [[True] * 4 + [False] * 4] * 2 and (masks.count, masks.retention) == (4, 0.5)
    tokens[0, :5] = (3, 9, 9, 50, 2)
    masks = criteria.allocate_experts("experts_reap", shape_of(), scores_of(values, tokens), 0.75)
    assert np.flatnonzero(~masks.experts[0]).tolist() == [0, 4]
    grouped = criteria.allocate_experts("m", shape_of(groups=2, top_groups=1), scores_of(values), 0.62)
    assert np.flatnonzero(grouped.experts[0]).tolist() == [0, 1, 4, 5] and grouped.retention == 0.5
    with pytest.raises(SettingsError, match=r"keeps 1 of 4 experts in each of its 2 groups, but the router needs 2: "):
        criteria.allocate_experts("m", shape_of(groups=2, top_groups=1), scores_of(values), 0.4)
    with pytest.raises(SettingsError, match=r"keeps 1 of 8 experts, but the router needs 2: .* at least 0\.25"):
        criteria.allocate_experts("m", shape_of(), scores_of(values), 0.2)
    with pytest.raises(ValueError, match="the same number of experts in every mixture"):
        ExpertMasks("m", np.array([[True, False], [True, True]]), 0.75, 0.75)


def test_random_scores_depend_on_the_seed_alone():
    first, again, other = (criteria.random_scores(shape_of(), seed) for seed in (0, 0, 1))
    assert np.array_equal(first.values, again.values) and not np.array_equal(first.values, other.values)
    assert not first.is_cold.any()


def test_parameters_count_experts_with_their_rows_of_the_router():
    assert shape_of().pruned_parameters(6) == 1000 - 2 * 2 * 10 and shape_of().kept_experts(0.7) == 5
