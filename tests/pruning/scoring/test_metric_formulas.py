"""The metrics against loops over their definitions, and what every one of them must hold to."""

from itertools import combinations

import numpy as np
import pytest
from made_records import the_moments

from gprune.pruning.scoring import METRICS, neuron_scorer, score
from gprune.records import ModelShape, WeightNorms
from gprune.study import CalibrationSettings
from gprune.study.methods import BUILT_IN_METRICS

SHAPE = ModelShape(layers=2, neurons=5, heads=4, kv_heads=2, head_width=3, hidden=7)
SAMPLES, LENGTH = 6, 4


@pytest.fixture(scope="module")
def example():
    generator = np.random.default_rng(0)
    widths = {"ffn": 5, "attention": 12}
    x = {part: generator.normal(1, 2, (SHAPE.layers, SAMPLES, LENGTH, width)) for part, width in widths.items()}
    weights = {part: generator.normal(size=(SHAPE.layers, SHAPE.hidden, width)) for part, width in widths.items()}
    norms = WeightNorms(*(norm for w in weights.values() for norm in ((w**2).sum(1), np.abs(w).mean(1))))
    return x, weights, norms, the_moments(x, [range(SAMPLES)])


def group_of(channel):
    """Key/value group of an o_proj input: heads are runs of head_width channels, groups runs of heads."""
    return channel // SHAPE.head_width // SHAPE.group_size


def test_wanda_sp_is_magnitude_times_norm_per_sequence(example):
    x, weights, norms, statistics = example
    scores = score("wanda_sp", statistics, norms, SHAPE, CalibrationSettings())
    for layer in range(SHAPE.layers):
        heads = np.zeros(2)
        for part, actual in (("ffn", scores.ffn[layer]), ("attention", scores.channels[layer])):
            for j, score_of_unit in enumerate(actual):
                # energy over all tokens divided by the number of sequences, not of tokens
                norm = np.sqrt(sum(v**2 for v in x[part][layer, :, :, j].ravel()) / SAMPLES)
                value = np.mean([abs(w) * norm for w in weights[part][layer, :, j]])
                assert score_of_unit == pytest.approx(value, rel=1e-12)
                if part == "attention":
                    heads[group_of(j)] += value
        np.testing.assert_allclose(scores.heads[layer], heads, rtol=1e-12)


@pytest.mark.parametrize("square", [True, False])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_flap_is_fluctuation_times_squared_column_norm(example, variant, square):
    x, weights, norms, statistics = example
    settings = CalibrationSettings(flap_variant=variant, square_head_score=square)
    scores = score("flap", statistics, norms, SHAPE, settings)
    for layer in range(SHAPE.layers):
        channels = np.zeros(12)
        for part, width in (("ffn", 5), ("attention", 12)):
            for j in range(width):
                fluctuation = np.mean((x[part][layer, ..., j] - x[part][layer, ..., j].mean()) ** 2)
                if variant == "released":
                    fluctuation = getattr(statistics, f"{part}_released_fluctuation")[layer, j]
                value = fluctuation * sum(w**2 for w in weights[part][layer, :, j])
                if part == "ffn":
                    assert scores.ffn[layer, j] == pytest.approx(value, rel=1e-12)
                else:
                    channels[j] = value**2 if square else value
        np.testing.assert_allclose(scores.channels[layer], channels, rtol=1e-12)
        means = [np.mean([channels[j] for j in range(12) if group_of(j) == g]) for g in range(2)]
        np.testing.assert_allclose(scores.heads[layer], means, rtol=1e-12)


SHAPES = {
    "mha": ModelShape(layers=2, neurons=12, heads=4, kv_heads=4, head_width=2, hidden=8),
    "gqa": ModelShape(layers=3, neurons=13, heads=6, kv_heads=2, head_width=3, hidden=5),
    "mqa": ModelShape(layers=1, neurons=7, heads=3, kv_heads=1, head_width=2, hidden=4),
}
CHANGES = {"paper": {}, "not squared": {"square_head_score": False}, "released": {"flap_variant": "released"}}
VARIANTS = {name: CalibrationSettings(samples=8, shards=4, length=5, **values) for name, values in CHANGES.items()}


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
    values = (generator.normal(0.5, 2, (shape.layers, samples, length, width)) for width in widths)
    return dict(zip(("ffn", "attention"), values, strict=True))


def norms(shape, seed=1):
    generator = np.random.default_rng(seed)
    widths = (shape.neurons, shape.neurons, shape.heads * shape.head_width, shape.heads * shape.head_width)
    return WeightNorms(*(generator.random((shape.layers, width)) + 0.1 for width in widths))


def four(samples=8):
    return np.array_split(np.arange(samples), 4)


def test_every_metric_of_a_study_exists():
    # token-weighted FLAP needs statistics by context and has a function of its own
    assert (*METRICS, "twflap") == BUILT_IN_METRICS


def test_parts_of_the_released_variant_take_the_plain_variance():
    shape = SHAPES["mha"]
    record, weights = the_moments(activations(shape), four()), norms(shape)

    def scored(variant, shards=None):
        return score("flap", record, weights, shape, VARIANTS[variant], shards=shards).ffn

    np.testing.assert_array_equal(scored("released", [1, 2]), scored("paper", [1, 2]))
    np.testing.assert_array_equal(scored("released", range(4)), scored("released"))
    assert np.abs(scored("released") - scored("paper")).max() > 0.1


def test_every_choice_of_shards_is_scored_as_the_units_are(metric):
    shape, settings = SHAPES["gqa"], VARIANTS["released"]
    record, weights = the_moments(activations(shape, samples=18), np.array_split(np.arange(18), 6)), norms(shape)
    scorer = neuron_scorer(metric, record, weights)
    for count in (1, 3, 5):
        for shards in combinations(range(6), count):
            np.testing.assert_array_equal(scorer(shards), score(metric, record, weights, shape, settings, shards).ffn)


@pytest.mark.parametrize("shards", [[0, 2], (1,), np.array([3, 0, 1])], ids=str)
def test_some_shards_score_as_their_samples_alone(metric, shape, shards):
    data, settings = activations(shape), VARIANTS["paper"]
    chosen = np.concatenate([four()[i] for i in shards])
    alone = the_moments({part: x[:, chosen] for part, x in data.items()}, [range(len(chosen))])
    expected = score(metric, alone, norms(shape), shape, settings)
    actual = score(metric, the_moments(data, four()), norms(shape), shape, settings, shards=shards)
    for name in ("ffn", "heads", "channels"):
        np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), rtol=1e-11)


def test_dead_channels_score_zero_and_one_token_is_finite(metric, shape, settings):
    data = activations(shape, samples=4, length=1)
    data["ffn"][..., 0], data["attention"][...] = 0, 0
    for groups in (four(4), [[0], [1], [2], [3]]):
        record = the_moments(data, groups)
        scores = score(metric, record, norms(shape), shape, settings)
        np.testing.assert_array_equal(scores.ffn[:, 0], 0)
        np.testing.assert_array_equal(scores.heads, 0)
        single = score(metric, record, norms(shape), shape, settings, shards=[2])
        assert np.isfinite(single.ffn).all()
