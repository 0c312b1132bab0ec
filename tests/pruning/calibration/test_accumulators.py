"""Streaming moments in the hard cases: far from zero, constant, with outliers, in odd batches."""

import numpy as np
import pytest
import torch

from gprune.pruning.calibration.accumulators import ChannelMoments
from gprune.pruning.sparsity import activation_checkpointing


def stream(x, batches, shards=None, **options):
    """Feeds (samples, length, channels) to one layer in batches of the given sizes."""
    part = ChannelMoments(
        "down_proj", 1 if shards is None else max(shards) + 1, range(1), x.shape[-1], x.device, **options
    )
    shard = np.zeros(len(x), int) if shards is None else np.array(shards)
    start = 0
    for size in batches:
        part.add(0, x[start : start + size])
        part.finish_batch(shard[start : start + size])
        start += size
    assert start == len(x)
    return part.result()


def two_pass(x):
    """Mean, centred second moment and energy in float64."""
    flat = x.double().numpy().reshape(-1, x.shape[-1])
    mean = flat.mean(0)
    return mean, ((flat - mean) ** 2).sum(0), (flat**2).sum(0)


def data(samples=12, length=9, channels=5, mean=0.0, spread=1.0, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(samples, length, channels, generator=generator) * spread + mean).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("mean", "spread"), [(0, 1), (100, 1), (-30, 0.3), (1e-3, 1e-6), (0, 1e-5), (0, 300)])
def test_moments_are_accurate_to_one_in_a_million(mean, spread, dtype):
    x = data(200, 16, mean=mean, spread=spread, dtype=dtype)
    result = stream(x, [16] * 12 + [8])
    expected = two_pass(x)
    scale = np.sqrt(expected[2] / (200 * 16))
    assert np.abs(result.mean[0, 0] - expected[0]).max() <= 1e-6 * scale.max()
    np.testing.assert_allclose(result.moment[0, 0], expected[1], rtol=1e-6)
    np.testing.assert_allclose(result.energy[0, 0], expected[2], rtol=1e-6)


def test_constant_and_dead_channels_have_no_variance():
    x = torch.zeros(6, 4, 3)
    x[..., 1] = 0.1
    x[..., 2] = 3.0
    result = stream(x, [4, 2], released=True)
    assert (result.moment >= 0).all()
    np.testing.assert_allclose(result.moment[0, 0], 0, atol=1e-12)
    np.testing.assert_allclose(result.released_fluctuation[0], 0, atol=1e-12)
    np.testing.assert_allclose(result.mean[0, 0], [0, np.float32(0.1), 3], rtol=1e-7)


HALVES = [torch.float16, torch.bfloat16]
# products of about 1e-7: float16 has none between 0 and 6e-8
SMALL = 1e-5


def _numbers(shape, scale, dtype, seed=0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
    return values.to(dtype)


def _assert_near(actual, terms, dims):
    """Within 1e-3 of float64, relative to the sum of absolute terms."""
    error = (actual.double() - terms.sum(dim=dims)).abs()
    assert (error <= 1e-3 * terms.abs().sum(dim=dims)).all()


@pytest.mark.parametrize("piece", [1, 100, 1 << 22])
@pytest.mark.parametrize("dtype", HALVES)
def test_mask_gradients_of_small_gradients(dtype, piece, monkeypatch):
    monkeypatch.setattr(activation_checkpointing, "_PIECE", piece)
    gradient, activations = _numbers((12, 7, 5), SMALL, dtype), _numbers((12, 7, 5), 1e-2, dtype, seed=1)
    actual = activation_checkpointing.summed_products(gradient, activations)
    assert actual.dtype == torch.float32 and actual.shape == (activation_checkpointing.SUBSETS, 5)
    terms = (gradient.double() * activations.double()).unflatten(0, (activation_checkpointing.SUBSETS, -1))
    _assert_near(actual, terms, (1, 2))
