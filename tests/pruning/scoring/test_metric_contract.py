"""What every importance metric must hold to, whatever it computes."""

from dataclasses import replace

import numpy as np
import pytest

from gprune.pruning.scoring import METRICS, score
from gprune.records import ActivationStatistics, ModelShape, WeightNorms
from gprune.study import METRIC_NAMES, CalibrationSettings
from gprune.system.errors import ModelError, SettingsError

SHAPES = {
    "mha": ModelShape(layers=2, neurons=12, heads=4, kv_heads=4, head_width=2, hidden=8),
    "gqa": ModelShape(layers=3, neurons=13, heads=6, kv_heads=2, head_width=3, hidden=5),
    "mqa": ModelShape(layers=1, neurons=7, heads=3, kv_heads=1, head_width=2, hidden=4),
}
VARIANTS = {
    "paper": CalibrationSettings(samples=8, shards=4, length=5),
    "not squared": CalibrationSettings(samples=8, shards=4, length=5, square_head_score=False),
    "released": CalibrationSettings(samples=8, shards=4, length=5, flap_variant="released"),
}


@pytest.fixture(params=sorted(METRICS))
def metric(request):
    return request.param


@pytest.fixture(params=sorted(SHAPES))
def shape(request):
    return SHAPES[request.param]


@pytest.fixture(params=sorted(VARIANTS))
def settings(request):
    return VARIANTS[request.param]


def activations(shape, seed=0, samples=8, length=5):
    """(layers, samples, length, channels) inputs of down_proj and of o_proj."""
    generator = np.random.default_rng(seed)
    widths = (shape.neurons, shape.heads * shape.head_width)
    return [generator.normal(0.5, 2, (shape.layers, samples, length, width)) for width in widths]


def statistics(data, groups):
    """Statistics of the samples in each group, one shard a group."""
    values = {}
    for part, x in zip(("ffn", "attention"), data, strict=True):
        shards = [x[:, list(g)].reshape(len(x), -1, x.shape[-1]) for g in groups]
        values[f"{part}_mean"] = np.stack([s.mean(1) for s in shards])
        values[f"{part}_moment"] = np.stack([((s - s.mean(1, keepdims=True)) ** 2).sum(1) for s in shards])
        values[f"{part}_energy"] = np.stack([(s**2).sum(1) for s in shards])
        values[f"{part}_released_fluctuation"] = x.reshape(len(x), -1, x.shape[-1]).var(1) * 0.9
    samples = np.array([len(g) for g in groups])
    tokens = samples * data[0].shape[2]
    return ActivationStatistics("text", "f", samples, tokens, **values)


def norms(shape, seed=1):
    generator = np.random.default_rng(seed)
    widths = (shape.neurons, shape.neurons, shape.heads * shape.head_width, shape.heads * shape.head_width)
    return WeightNorms(*(generator.random((shape.layers, width)) + 0.1 for width in widths))


def four(samples=8):
    return np.array_split(np.arange(samples), 4)


def test_every_metric_of_a_study_exists():
    # token-weighted FLAP needs statistics by context and has a function of its own
    assert (*METRICS, "twflap") == METRIC_NAMES


def test_scores_have_the_models_shape_and_are_finite(metric, shape, settings):
    scores = score(metric, statistics(activations(shape), four()), norms(shape), shape, settings)
    assert scores.metric == metric
    assert scores.text == "text"
    assert scores.ffn.shape == (shape.layers, shape.neurons)
    assert scores.heads.shape == (shape.layers, shape.kv_heads)
    assert scores.channels.shape == (shape.layers, shape.heads * shape.head_width)
    for values in (scores.ffn, scores.heads, scores.channels):
        assert values.dtype == np.float64
        assert np.isfinite(values).all()
        assert (values > 0).all()


def test_permuting_neurons_permutes_their_scores(metric, shape, settings):
    data, weights = activations(shape), norms(shape)
    order = np.random.default_rng(2).permutation(shape.neurons)
    moved = replace(
        weights,
        down_column_square=weights.down_column_square[:, order],
        down_column_absolute=weights.down_column_absolute[:, order],
    )
    before = score(metric, statistics(data, four()), weights, shape, settings)
    after = score(metric, statistics([data[0][..., order], data[1]], four()), moved, shape, settings)
    np.testing.assert_allclose(after.ffn, before.ffn[:, order], rtol=1e-12)
    np.testing.assert_array_equal(after.heads, before.heads)


@pytest.mark.parametrize(
    "groups", [[range(8)], [[0], [1, 2, 3, 4, 5, 6], [7]], [[7, 3], [0, 5, 1], [2, 6, 4]]], ids=str
)
def test_any_split_into_shards_gives_the_same_scores(metric, shape, settings, groups):
    data = activations(shape)
    expected = score(metric, statistics(data, four()), norms(shape), shape, settings)
    actual = score(metric, statistics(data, groups), norms(shape), shape, settings)
    np.testing.assert_allclose(actual.ffn, expected.ffn, rtol=1e-11)
    np.testing.assert_allclose(actual.heads, expected.heads, rtol=1e-11)


@pytest.mark.parametrize("shards", [[0, 2], (1,), np.array([3, 0, 1])], ids=str)
def test_some_shards_score_as_their_samples_alone(metric, shape, shards):
    data, settings = activations(shape), VARIANTS["paper"]
    chosen = np.concatenate([four()[i] for i in shards])
    alone = statistics([x[:, chosen] for x in data], [range(len(chosen))])
    expected = score(metric, alone, norms(shape), shape, settings)
    actual = score(metric, statistics(data, four()), norms(shape), shape, settings, shards=shards)
    np.testing.assert_allclose(actual.ffn, expected.ffn, rtol=1e-11)
    np.testing.assert_allclose(actual.heads, expected.heads, rtol=1e-11)
    np.testing.assert_allclose(actual.channels, expected.channels, rtol=1e-11)


def test_dead_channels_score_zero_and_a_single_token_is_finite(metric, shape, settings):
    data = activations(shape, samples=4, length=1)
    data[0][..., 0], data[1][...] = 0, 0
    for groups in (four(4), [[0], [1], [2], [3]]):
        record = statistics(data, groups)
        scores = score(metric, record, norms(shape), shape, settings)
        np.testing.assert_array_equal(scores.ffn[:, 0], 0)
        np.testing.assert_array_equal(scores.heads, 0)
        one = score(metric, record, norms(shape), shape, settings, shards=[2])
        assert np.isfinite(one.ffn).all()


def test_an_unknown_metric_and_no_shards_are_refused(shape):
    record, weights, settings = statistics(activations(shape), four()), norms(shape), VARIANTS["paper"]
    with pytest.raises(SettingsError, match=r"'magic'.*flap, wanda_sp"):
        score("magic", record, weights, shape, settings)
    with pytest.raises(SettingsError, match="empty list"):
        score("flap", record, weights, shape, settings, shards=[])


def test_statistics_of_another_model_are_refused():
    shape, other = SHAPES["mha"], SHAPES["gqa"]
    record, settings = statistics(activations(shape), four()), VARIANTS["paper"]
    with pytest.raises(ModelError, match="ffn_mean covers"):
        score("flap", record, norms(shape), other, settings)
    with pytest.raises(ModelError, match="down_column_square"):
        score("flap", record, norms(other), shape, settings)
