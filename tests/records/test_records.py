"""Records: arithmetic of the model's shape, merging of moments, checks and read-only arrays."""

from dataclasses import replace

import numpy as np
import pytest
from made_records import a_partition, the_moments

from gprune import records
from gprune.system.errors import NumericsError


def statistics(seed=0, **changes):
    """Two layers, 5 neurons, 4 channels, shards of different sizes, from known activations."""
    generator = np.random.default_rng(seed)
    inputs = {"ffn": generator.normal(3, 2, (2, 11, 1, 5)), "attention": generator.normal(-1, 1, (2, 11, 1, 4))}
    ends = [range(3), range(3, 4), range(4, 11)]
    record = replace(the_moments(inputs, ends), **({"shard_samples": np.array([2, 1, 4])} | changes))
    return record, {part: [x[:, list(end), 0] for end in ends] for part, x in inputs.items()}


@pytest.mark.parametrize(("heads", "kv_heads"), [(32, 32), (32, 8), (6, 1)])
def test_shape_counts_the_weights_of_the_projections(heads, kv_heads):
    shape = records.ModelShape(layers=3, neurons=13, heads=heads, kv_heads=kv_heads, head_width=4, hidden=10)
    attention = 2 * (10 * heads * 4) + 2 * (10 * kv_heads * 4)
    assert shape.decoder_weights == 3 * (attention + 3 * 10 * 13)
    assert shape.kv_heads * shape.group_weights == attention
    assert shape.kv_heads * shape.group_channels == heads * 4
    assert 3 * shape.group_weights == (2 * heads // kv_heads + 2) * 4 * shape.neuron_weights


def assert_sums_of(record, part, tokens):
    """Compare the moments of a part with sums over single tokens."""
    mean = sum(tokens) / len(tokens)
    moment, energy = sum((token - mean) ** 2 for token in tokens), sum(token**2 for token in tokens)
    np.testing.assert_allclose(getattr(record, f"{part}_mean")[0], mean, rtol=1e-12)
    np.testing.assert_allclose(getattr(record, f"{part}_moment")[0], moment, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(getattr(record, f"{part}_energy")[0], energy, rtol=1e-12)


@pytest.mark.parametrize("chosen", [None, [0], [0, 2], [2, 1], np.array([1])])
def test_merge_equals_the_moments_of_all_tokens_together(chosen):
    record, data = statistics()
    merged = record.merge(chosen)
    index = range(3) if chosen is None else chosen
    assert merged.shards == 1
    assert merged.shard_tokens[0] == sum((3, 1, 7)[i] for i in index)
    assert merged.shard_samples[0] == sum((2, 1, 4)[i] for i in index)
    for part, shards in data.items():
        assert_sums_of(merged, part, [token for i in index for token in np.moveaxis(shards[i], 1, 0)])


def test_pooled_texts_are_as_if_they_were_one_text():
    first, item = statistics()
    second, two = statistics(seed=1, shard_samples=np.array([1, 1, 2]))
    pooled = records.pool(first, second).merge()
    assert pooled.shard_tokens[0] == 22 and pooled.shard_samples[0] == 11
    for part in ("ffn", "attention"):
        tokens = [token for data in (item, two) for shard in data[part] for token in np.moveaxis(shard, 1, 0)]
        assert_sums_of(pooled, part, tokens)


def test_merge_moments_does_not_cancel_far_from_zero():
    generator = np.random.default_rng(1)
    groups = [generator.normal(1e8, 1, (50, 3)) for _ in range(4)]
    means = np.stack([g.mean(0) for g in groups])
    moments = np.stack([((g - g.mean(0)) ** 2).sum(0) for g in groups])
    _, moment = records.merge_moments(np.full(4, 50.0), means, moments)
    joined = np.concatenate(groups)
    np.testing.assert_allclose(moment, ((joined - joined.mean(0)) ** 2).sum(0), rtol=1e-6)


def test_statistics_refuse_what_does_not_fit_or_is_not_finite():
    with pytest.raises(ValueError, match="ffn_energy has shape"):
        statistics(ffn_energy=np.zeros((3, 2, 6)))
    bad = np.zeros((3, 2, 5))
    bad[1, 0, 4] = np.nan
    with pytest.raises(NumericsError, match=r"ffn_mean holds 1 values.*\(1, 0, 4\).*float32"):
        statistics(ffn_mean=bad)


@pytest.mark.parametrize("name", ["ffn", "heads", "channels"])
def test_scores_refuse_what_is_not_finite(name):
    values = {"ffn": np.ones((1, 2)), "heads": np.ones((1, 2)), "channels": np.ones((1, 2))}
    values[name] = np.array([[1, np.inf]])
    with pytest.raises(NumericsError, match=f"UnitScores.{name}"):
        records.UnitScores("flap", "t", **values)


def test_records_keep_copies_that_nobody_can_change_and_partition_numbers_modules_over_all_layers():
    ids = np.zeros((2, 3), np.int32)
    tokens = records.Tokens("t", "f", ids, 2)
    ids[0, 0] = 7
    assert tokens.ids[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        tokens.ids[0, 0] = 1
    with pytest.raises(AttributeError):
        tokens.text = "other"
    record = a_partition([[0, 1, 1], [2, 0, 1]], [2, 3])
    assert record.modules == 5
    np.testing.assert_array_equal(record.offsets, [0, 2])
    np.testing.assert_array_equal(record.global_labels, [[0, 1, 1], [4, 2, 3]])
    np.testing.assert_array_equal(record.module_layer, [0, 0, 1, 1, 1])


@pytest.mark.parametrize(("labels", "count"), [([0, 2, 2], 2), ([0, 1, 1], 3), ([1, 1, 2], 2)])
def test_partition_refuses_gaps_and_empty_modules(labels, count):
    with pytest.raises(ValueError, match="layer 0"):
        a_partition([labels], [count])


def test_other_records_check_their_shapes():
    ones = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"Tokens.ids has shape \(4,\), expected \(samples, length\)"):
        records.Tokens("a text", "f", np.zeros(4, np.int32), 9)
    with pytest.raises(ValueError, match="RankDrift.half"):
        records.RankDrift(ones, ones, ones, ones, ones, np.ones((2, 2)), *np.ones((4, 2)))
    with pytest.raises(ValueError, match="ModuleStatistics.size"):
        records.ModuleStatistics(*np.ones((2, 3)), np.ones(2), *np.ones((3, 3)))
    with pytest.raises(ValueError, match="Agreement.ari"):
        records.Agreement(("a",), ones, ones)
    with pytest.raises(NumericsError, match="AdaptedScores.scores"):
        records.AdaptedScores(np.array([[np.nan]]), np.zeros(1, bool), np.zeros(1, np.int8), 0.0, 0.0)
    with pytest.raises(NumericsError, match="WeightNorms.out_column_square"):
        records.WeightNorms(ones, ones, np.full((2, 3), np.inf), ones)
