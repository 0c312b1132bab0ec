"""What every baseline holds to, from statistics to masks: each method of the tables, one contract."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from made_records import the_moments

from gprune.pruning.allocation import fang, flap, llm_pruner, uniform
from gprune.pruning.modules.functional_groups import functional_groups, group_profile
from gprune.pruning.scoring import combine, score, twflap
from gprune.records import (
    Contexts,
    ContextStatistics,
    ModelShape,
    UnitScores,
    WeightNorms,
    budget,
    pool,
    pool_contexts,
)
from gprune.study import CalibrationSettings, ContextSettings
from gprune.study.methods import BUILT_IN_METRICS, METHODS

SHAPES = {
    "mha": ModelShape(layers=4, neurons=64, heads=4, kv_heads=4, head_width=2, hidden=8),
    "gqa": ModelShape(layers=2, neurons=53, heads=6, kv_heads=2, head_width=3, hidden=5),
    "one group": ModelShape(layers=1, neurons=61, heads=4, kv_heads=1, head_width=2, hidden=6),
}
# learned, chosen and layer-by-layer methods need a model; they are held to their contract elsewhere
BASELINES = [m for m in METHODS.values() if not (m.learns or m.layered or m.decision in ("none", "chosen"))]
CONTEXTS, SAMPLES, LENGTH = 3, 8, 12
SETTINGS = CalibrationSettings(samples=SAMPLES, shards=4, length=LENGTH)


@dataclass(frozen=True)
class Text:
    """Explicit tokens of one calibration text, and the gradient-based scores that come with them."""

    name: str
    ffn: np.ndarray
    """(layers, samples, length, neurons)"""
    attention: np.ndarray
    kinds: np.ndarray
    """(layers, samples, length)"""
    affinity: np.ndarray
    change: np.ndarray
    taylor: np.ndarray

    def permuted(self, order):
        return replace(
            self,
            ffn=self.ffn[..., order],
            affinity=self.affinity[..., order],
            taylor=self.taylor[..., order],
        )


def text(shape, name, seed):
    generator = np.random.default_rng(seed)
    tokens = (shape.layers, SAMPLES, LENGTH)
    kinds = generator.integers(0, CONTEXTS, tokens)
    scale = generator.gamma(2, 1, (shape.layers, 1, 1, shape.neurons))
    return Text(
        name,
        generator.normal(0.3, 1, (*tokens, shape.neurons)) * scale * (1 + kinds[..., None]),
        generator.normal(0, 1, (*tokens, shape.heads * shape.head_width)),
        kinds,
        generator.gamma(0.7, 1, (shape.layers, CONTEXTS, shape.neurons)),
        generator.gamma(1, 1, shape.layers),
        generator.gamma(1, 1, (shape.layers, shape.neurons)),
    )


def plain_statistics(words, shards):
    return the_moments({"ffn": words.ffn, "attention": words.attention}, shards, words.name)


def context_statistics(words, shards):
    layers, neurons = len(words.ffn), words.ffn.shape[-1]
    tokens = np.zeros((len(shards), layers, CONTEXTS), dtype=np.int64)
    mean, moment = np.zeros((2, len(shards), layers, CONTEXTS, neurons))
    for s, shard in enumerate(shards):
        for layer in range(layers):
            for c in range(CONTEXTS):
                x = words.ffn[layer, list(shard)][words.kinds[layer, list(shard)] == c]
                tokens[s, layer, c] = len(x)
                if len(x):
                    mean[s, layer, c], moment[s, layer, c] = x.mean(0), ((x - x.mean(0)) ** 2).sum(0)
    return ContextStatistics(words.name, "a", tokens, mean, moment, words.affinity, words.change)


def weight_norms(shape):
    generator = np.random.default_rng(7)
    widths = (shape.neurons, shape.neurons, shape.heads * shape.head_width, shape.heads * shape.head_width)
    return WeightNorms(*(generator.random((shape.layers, width)) + 0.1 for width in widths))


def clusters(shape):
    points = np.random.default_rng(8).normal(size=(shape.layers, CONTEXTS, 2))
    distances = np.sqrt(((points[:, :, None] - points[:, None]) ** 2).sum(-1))
    distances /= distances.sum((1, 2), keepdims=True) / (CONTEXTS * (CONTEXTS - 1))
    components = np.tile(np.eye(2, shape.hidden), (shape.layers, 1, 1))
    return Contexts("a", np.zeros((shape.layers, shape.hidden)), components, points, distances, 9)


def metric_scores(metric, shape, norms, statistics, measured, groups):
    """Scores by any metric; `measured` are the statistics per context."""
    if metric != "fang":
        return score(metric, statistics, norms, shape, SETTINGS)
    heads = score("flap", statistics, norms, shape, SETTINGS)
    profile = group_profile(CONTEXTS)
    settings = ContextSettings(count=CONTEXTS)
    return twflap.score(measured, clusters(shape), norms, groups.labels, profile, heads, settings)


def method_scores(method, shape, norms, texts, shards):
    """Scores of a method as its scoring says, and what FANG decides on beside them."""
    plain = [plain_statistics(words, shards) for words in texts]
    measured = [context_statistics(words, shards) for words in texts]
    metric = method.metric
    if metric == "llm_pruner":
        flapped = score("flap", plain[0], norms, shape, SETTINGS)
        return UnitScores(metric, "a", texts[0].taylor, flapped.heads, flapped.channels), None, None
    if method.scoring == "pooled":
        both, together = pool(*plain), pool_contexts(*measured)
        groups = functional_groups(together.affinity, "balanced")
        return metric_scores(metric, shape, norms, both, together, groups), groups, together.layer_change
    groups = functional_groups(measured[0].affinity, "balanced")
    scores = [metric_scores(metric, shape, norms, one, two, groups) for one, two in zip(plain, measured, strict=True)]
    made = scores[0] if method.scoring == "single" else combine(method.scoring, *scores, shape)
    return made, groups, measured[0].layer_change


def decide(method, shape, scores, groups, change, target):
    if method.decision == "fang":
        return fang.allocate(scores, groups, change, shape, target)
    return {"flap": flap, "uniform": uniform, "llm_pruner": llm_pruner}[method.decision].allocate(scores, shape, target)


def run(method, shape, target=0.6, order=None, shards=None):
    texts, norms = [text(shape, "a", 0), text(shape, "b", 1)], weight_norms(shape)
    if order is not None:
        texts = [words.permuted(order) for words in texts]
        norms = replace(
            norms,
            down_column_square=norms.down_column_square[:, order],
            down_column_absolute=norms.down_column_absolute[:, order],
        )
    shards = shards or np.array_split(np.arange(SAMPLES), 4)
    scores, groups, change = method_scores(method, shape, norms, texts, shards)
    return scores, decide(method, shape, scores, groups, change, target)


@pytest.fixture(params=BASELINES, ids=lambda method: method.name)
def method(request):
    return request.param


@pytest.fixture(params=sorted(SHAPES))
def shape(request):
    return SHAPES[request.param]


def test_every_baseline_metric_is_a_studys_or_has_its_own_scoring():
    assert {m.metric for m in BASELINES} <= set(BUILT_IN_METRICS) | {"fang", "llm_pruner"}
    assert {m.decision for m in BASELINES} == {"flap", "uniform", "fang", "llm_pruner"}


@pytest.mark.parametrize("target", [0.4, 0.6, 0.85])
def test_shapes_values_and_retention(method, shape, target):
    if method.decision == "llm_pruner":
        # the layers that it leaves dense set a floor
        target = max(target, round(llm_pruner.lowest_retention(shape) + 0.05, 2))
    scores, masks = run(method, shape, target)
    assert scores.ffn.shape == masks.ffn.shape == (shape.layers, shape.neurons)
    assert scores.heads.shape == masks.heads.shape == (shape.layers, shape.kv_heads)
    assert scores.channels.shape == (shape.layers, shape.heads * shape.head_width)
    for values in (scores.ffn, scores.heads, scores.channels):
        assert values.dtype == np.float64 and np.isfinite(values).all() and (values >= 0).all()
    assert scores.text == ("a" if method.scoring == "single" else "a + b")
    assert masks.ffn.any(axis=1).all() and masks.heads.any(axis=1).all()
    assert masks.target == target
    assert masks.retention == budget.retention(shape, masks.ffn, masks.heads)
    # FLAP cuts one ranking of neurons and groups, the others fill up with neurons
    unit = shape.group_weights if method.decision == "flap" else shape.neuron_weights
    assert abs(masks.retention - target) * shape.decoder_weights <= unit


def test_permuting_neurons_permutes_scores_and_masks(method, shape):
    order = np.random.default_rng(3).permutation(shape.neurons)
    scores, masks = run(method, shape)
    moved, after = run(method, shape, order=order)
    np.testing.assert_allclose(moved.ffn, scores.ffn[:, order], rtol=1e-12)
    np.testing.assert_allclose(moved.heads, scores.heads, rtol=1e-12)
    if method.scoring != "rank_average":
        # mean ranks tie often, and of equal scores the first stays
        np.testing.assert_array_equal(after.ffn, masks.ffn[:, order])
    np.testing.assert_array_equal(after.ffn.sum(1), masks.ffn.sum(1))
    np.testing.assert_array_equal(after.heads, masks.heads)


@pytest.mark.parametrize(
    "shards", [[range(SAMPLES)], [[0], [1, 2, 3, 4, 5, 6], [7]], [[7, 3], [0, 5, 1], [2, 6, 4]]], ids=str
)
def test_any_split_into_shards_gives_the_same(method, shape, shards):
    scores, masks = run(method, shape)
    again, after = run(method, shape, shards=shards)
    np.testing.assert_allclose(again.ffn, scores.ffn, rtol=1e-11)
    np.testing.assert_allclose(again.heads, scores.heads, rtol=1e-11)
    if method.scoring != "rank_average":
        np.testing.assert_array_equal(after.ffn, masks.ffn)
        np.testing.assert_array_equal(after.heads, masks.heads)
