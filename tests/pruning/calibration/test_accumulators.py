"""Streaming moments in the hard cases: far from zero, constant, with outliers, in odd batches."""

import numpy as np
import pytest
import torch

from gprune.pruning.calibration.accumulators import ChannelMoments


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
@pytest.mark.parametrize(("mean", "spread"), [(0, 1), (100, 1), (-30, 0.3), (1e-3, 1e-6), (0, 1e-4)])
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


@pytest.mark.parametrize("batches", [[12], [1] * 12, [5, 7], [2, 1, 9]])
def test_batches_may_span_shards(batches):
    x = data(mean=3)
    result = stream(x, batches, [0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 3, 3])
    for shard, (first, last) in enumerate([(0, 3), (3, 7), (7, 8), (8, 12)]):
        mean, moment, energy = two_pass(x[first:last])
        np.testing.assert_allclose(result.mean[shard, 0], mean, rtol=1e-6)
        np.testing.assert_allclose(result.moment[shard, 0], moment, rtol=1e-6)
        np.testing.assert_allclose(result.energy[shard, 0], energy, rtol=1e-6)


def test_released_fluctuation_far_from_zero():
    x = data(20, 7, mean=50, spread=0.5)
    result = stream(x, [6, 6, 8], released=True)
    wide = x.double().numpy()
    total = np.zeros(5)
    for j in range(1, 20):
        mean = wide[: j + 1].reshape(-1, 5).mean(0)
        total += j / (j + 1) * ((wide[j] - mean) ** 2).sum(0)
    np.testing.assert_allclose(result.released_fluctuation[0], total / 19, rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_moments_on_a_gpu():
    x = data(64, 16, mean=5, dtype=torch.bfloat16)
    actual, expected = stream(x.cuda(), [16] * 4, released=True), stream(x, [16] * 4, released=True)
    np.testing.assert_allclose(actual.moment, expected.moment, rtol=1e-5)
    np.testing.assert_allclose(actual.released_fluctuation, expected.released_fluctuation, rtol=1e-5)
