"""The metrics against loops over their definitions."""

import numpy as np
import pytest

from gprune.pruning.scoring import score
from gprune.records import ActivationStatistics, ModelShape, WeightNorms
from gprune.study import CalibrationSettings

SHAPE = ModelShape(layers=2, neurons=5, heads=4, kv_heads=2, head_width=3, hidden=7)
SAMPLES, LENGTH = 6, 4


@pytest.fixture(scope="module")
def example():
    generator = np.random.default_rng(0)
    x = {
        "ffn": generator.normal(1, 2, (SHAPE.layers, SAMPLES, LENGTH, 5)),
        "attention": generator.normal(0, 1, (SHAPE.layers, SAMPLES, LENGTH, 12)),
    }
    down = generator.normal(size=(SHAPE.layers, SHAPE.hidden, 5))
    out = generator.normal(size=(SHAPE.layers, SHAPE.hidden, 12))
    norms = WeightNorms((down**2).sum(1), np.abs(down).mean(1), (out**2).sum(1), np.abs(out).mean(1))
    values = {}
    for part, data in x.items():
        flat = data.reshape(SHAPE.layers, 1, -1, data.shape[-1]).swapaxes(0, 1)
        values[f"{part}_mean"] = flat.mean(2)
        values[f"{part}_moment"] = ((flat - flat.mean(2, keepdims=True)) ** 2).sum(2)
        values[f"{part}_energy"] = (flat**2).sum(2)
        values[f"{part}_released_fluctuation"] = generator.random((SHAPE.layers, data.shape[-1]))
    counts = np.array([SAMPLES]), np.array([SAMPLES * LENGTH])
    return x, {"ffn": down, "attention": out}, norms, ActivationStatistics("t", "f", *counts, **values)


def group_of(channel):
    """Key/value group of an o_proj input: heads are runs of head_width channels, groups runs of heads."""
    return channel // SHAPE.head_width // SHAPE.group_size


def test_wanda_sp_is_magnitude_times_norm_per_sequence(example):
    x, weights, norms, statistics = example
    scores = score("wanda_sp", statistics, norms, SHAPE, CalibrationSettings())
    for layer in range(SHAPE.layers):
        heads = np.zeros(2)
        for part, width in (("ffn", 5), ("attention", 12)):
            for j in range(width):
                # energy over all tokens divided by the number of sequences, not of tokens
                norm = np.sqrt(sum(v**2 for v in x[part][layer, :, :, j].ravel()) / SAMPLES)
                value = np.mean([abs(w) * norm for w in weights[part][layer, :, j]])
                if part == "ffn":
                    assert scores.ffn[layer, j] == pytest.approx(value, rel=1e-12)
                else:
                    assert scores.channels[layer, j] == pytest.approx(value, rel=1e-12)
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


def test_parts_of_the_released_variant_take_the_plain_variance(example):
    _, _, norms, statistics = example
    doubled = {
        name: np.repeat(getattr(statistics, name), 2, axis=0)
        for name in (f"{p}_{m}" for p in ("ffn", "attention") for m in ("mean", "moment", "energy"))
    }
    two = ActivationStatistics(
        "t",
        "f",
        np.repeat(statistics.shard_samples, 2),
        np.repeat(statistics.shard_tokens, 2),
        ffn_released_fluctuation=statistics.ffn_released_fluctuation,
        attention_released_fluctuation=statistics.attention_released_fluctuation,
        **doubled,
    )
    released, paper = (CalibrationSettings(flap_variant=v) for v in ("released", "paper"))
    half = score("flap", two, norms, SHAPE, released, shards=[1])
    plain = score("flap", statistics, norms, SHAPE, paper)
    np.testing.assert_allclose(half.ffn, plain.ffn, rtol=1e-12)
    whole = score("flap", two, norms, SHAPE, released, shards=[0, 1])
    np.testing.assert_array_equal(whole.ffn, score("flap", two, norms, SHAPE, released).ffn)
    assert np.abs(whole.ffn - half.ffn).max() > 0.1
