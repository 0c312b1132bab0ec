"""The statistics of one pass against float64 loops over the recorded activations."""

import numpy as np
import pytest
import torch
from calibration.texts_and_families import FAMILIES, tokens

from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import collect
from gprune.pruning.calibration.collection import observe_inputs
from gprune.study import CalibrationSettings
from gprune.system.errors import SettingsError


def settings(**changes):
    return CalibrationSettings(**({"samples": 10, "length": 6, "shards": 4, "batch": 4} | changes))


@torch.no_grad()
def recorded(decoder, ids):
    """(layers, samples, length, channels) float64 inputs of down_proj and o_proj, one sequence at a time."""
    inputs, layers = {"ffn": [], "attention": []}, decoder.shape.layers
    keep = [lambda _, x, rows=rows: rows.append(x[0].double().numpy()) for rows in inputs.values()]
    with observe_inputs(decoder, range(layers), *keep):
        for row in ids:
            decoder.hidden_states(torch.tensor(row[None].astype(np.int64)))
    return {part: np.stack([rows[layer::layers] for layer in range(layers)]) for part, rows in inputs.items()}


def loop_released(x):
    """fluc = 1/(n-1) sum_{j>=1} j/(j+1) sum_t (x_jt - mean_{0..j})^2 for (samples, length, channels)."""
    samples = len(x)
    total = np.zeros(x.shape[-1])
    for j in range(1, samples):
        mean = x[: j + 1].reshape(-1, x.shape[-1]).mean(0)
        total += j / (j + 1) * sum((row - mean) ** 2 for row in x[j])
    return total / (samples - 1)


def close(actual, expected, rtol):
    """Relative to the largest value of the layer's channels, since a mean may be near zero."""
    scale = np.abs(expected).max(axis=-1, keepdims=True)
    np.testing.assert_allclose(actual / scale, expected / scale, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(("kind", "batch"), list(zip(FAMILIES, (1, 3, 4, 7, 64), strict=True)))
def test_every_shard_and_all_together_hold_the_moments_of_their_samples(kind, batch):
    decoder, calibration = tiny_decoder(**FAMILIES[kind]), tokens()
    statistics = collect(decoder, calibration, settings(batch=batch))
    assert (decoder.forward_tokens, decoder.backward_tokens) == (60, 0)
    activations = recorded(decoder, calibration.ids)
    np.testing.assert_array_equal(statistics.shard_samples, [3, 3, 2, 2])
    np.testing.assert_array_equal(statistics.shard_tokens, [18, 18, 12, 12])
    assert (statistics.text, statistics.fingerprint) == ("a text", "fingerprint")
    parts = [(statistics, shard, bounds) for shard, bounds in enumerate([(0, 3), (3, 6), (6, 8), (8, 10)])]
    for sums, shard, (first, last) in [*parts, (statistics.merge(), 0, (0, 10))]:
        for part, x in activations.items():
            flat = x[:, first:last].reshape(len(x), -1, x.shape[-1])
            moment = ((flat - flat.mean(1, keepdims=True)) ** 2).sum(1)
            close(getattr(sums, f"{part}_mean")[shard], flat.mean(1), 1e-6)
            np.testing.assert_allclose(getattr(sums, f"{part}_moment")[shard], moment, rtol=1e-5)
            np.testing.assert_allclose(getattr(sums, f"{part}_energy")[shard], (flat**2).sum(1), rtol=1e-5)
    assert statistics.ffn_mean.dtype == np.float64


@pytest.mark.parametrize(("samples", "batch"), [(2, 4), (3, 1), (10, 4), (10, 7)])
def test_the_released_fluctuation_is_the_recursion_over_the_samples(samples, batch):
    decoder, calibration = tiny_decoder(kv_heads=2, layers=3), tokens(samples)
    chosen = settings(samples=samples, shards=2, batch=batch, flap_variant="released")
    statistics = collect(decoder, calibration, chosen)
    for part, x in recorded(decoder, calibration.ids).items():
        expected = np.stack([loop_released(layer) for layer in x])
        np.testing.assert_allclose(getattr(statistics, f"{part}_released_fluctuation"), expected, rtol=1e-5)


def test_fewer_samples_than_shards_are_refused():
    with pytest.raises(SettingsError, match=r"'a text' gives 3 sequences for 4 shards"):
        collect(tiny_decoder(), tokens(3), settings())
