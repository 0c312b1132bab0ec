"""What every importance metric must hold to, whatever it computes."""

import numpy as np
import pytest
from made_records import the_moments

from gprune.pruning.scoring import METRICS, score
from gprune.records import ModelShape, WeightNorms
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
    drawn = (generator.normal(0.5, 2, (shape.layers, samples, length, width)) for width in widths)
    return dict(zip(("ffn", "attention"), drawn, strict=True))


def norms(shape, seed=1):
    generator = np.random.default_rng(seed)
    widths = (shape.neurons, shape.neurons, shape.heads * shape.head_width, shape.heads * shape.head_width)
    return WeightNorms(*(generator.random((shape.layers, width)) + 0.1 for width in widths))


def four(samples=8):
    return np.array_split(np.arange(samples), 4)


def test_every_metric_of_a_study_exists():
    # token-weighted FLAP needs statistics by context and has a function of its own
    assert (*METRICS, "twflap") == METRIC_NAMES


@pytest.mark.parametrize("shards", [[0, 2], (1,), np.array([3, 0, 1])], ids=str)
def test_some_shards_score_as_their_samples_alone(metric, shape, shards):
    data, settings = activations(shape), VARIANTS["paper"]
    chosen = np.concatenate([four()[i] for i in shards])
    alone = the_moments({part: x[:, chosen] for part, x in data.items()}, [range(len(chosen))])
    expected = score(metric, alone, norms(shape), shape, settings)
    actual = score(metric, the_moments(data, four()), norms(shape), shape, settings, shards=shards)
    np.testing.assert_allclose(actual.ffn, expected.ffn, rtol=1e-11)
    np.testing.assert_allclose(actual.heads, expected.heads, rtol=1e-11)
    np.testing.assert_allclose(actual.channels, expected.channels, rtol=1e-11)


def test_dead_channels_score_zero_and_a_single_token_is_finite(metric, shape, settings):
    data = activations(shape, samples=4, length=1)
    data["ffn"][..., 0], data["attention"][...] = 0, 0
    for groups in (four(4), [[0], [1], [2], [3]]):
        record = the_moments(data, groups)
        scores = score(metric, record, norms(shape), shape, settings)
        np.testing.assert_array_equal(scores.ffn[:, 0], 0)
        np.testing.assert_array_equal(scores.heads, 0)
        one = score(metric, record, norms(shape), shape, settings, shards=[2])
        assert np.isfinite(one.ffn).all()


def test_what_does_not_fit_is_refused(shape):
    record, weights, settings = the_moments(activations(shape), four()), norms(shape), VARIANTS["paper"]
    with pytest.raises(SettingsError, match=r"'magic'.*flap, wanda_sp"):
        score("magic", record, weights, shape, settings)
    with pytest.raises(SettingsError, match="empty list"):
        score("flap", record, weights, shape, settings, shards=[])
    shape, other = SHAPES["mha"], SHAPES["gqa"]
    record, settings = the_moments(activations(shape), four()), VARIANTS["paper"]
    with pytest.raises(ModelError, match="ffn_mean covers"):
        score("flap", record, norms(shape), other, settings)
    with pytest.raises(ModelError, match="down_column_square"):
        score("flap", record, norms(other), shape, settings)
