"""Streaming moments in the hard cases: far from zero, constant, with outliers, in odd batches."""

import numpy as np
import pytest
import torch

from gprune.models.oom_backoff import commit
from gprune.pruning.calibration.accumulators import ChannelMoments
from gprune.pruning.calibration.context_statistics import GroupMoments
from gprune.pruning.calibration.gradients import _reduce
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


HALVES = [torch.float16, torch.bfloat16]
# products of about 1e-7: float16 has none between 0 and 6e-8
SMALL = 1e-5


def _numbers(shape, scale, dtype, seed=0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
    return values.to(dtype)


def _assert_near(found, terms, dims):
    """Within 1e-3 of float64, relative to the sum of absolute terms."""
    error = (found.double() - terms.sum(dim=dims)).abs()
    assert (error <= 1e-3 * terms.abs().sum(dim=dims)).all()


@pytest.mark.parametrize("piece", [1, 100, 1 << 22])
@pytest.mark.parametrize("dtype", HALVES)
def test_mask_gradients_of_small_gradients(dtype, piece, monkeypatch):
    monkeypatch.setattr(activation_checkpointing, "_PIECE", piece)
    gradient, activations = _numbers((12, 7, 5), SMALL, dtype), _numbers((12, 7, 5), 1e-2, dtype, seed=1)
    found = activation_checkpointing.summed_products(gradient, activations)
    assert found.dtype == torch.float32 and found.shape == (activation_checkpointing.SUBSETS, 5)
    terms = (gradient.double() * activations.double()).unflatten(0, (activation_checkpointing.SUBSETS, -1))
    _assert_near(found, terms, (1, 2))


@pytest.mark.parametrize("dtype", HALVES)
def test_llm_pruners_products_of_weights_and_gradients(dtype):
    weight = torch.nn.Parameter(_numbers((6, 9), 1e-2, dtype))
    weight.grad = _numbers((6, 9), SMALL, dtype, seed=1)
    terms = (weight.detach().double() * weight.grad.double()).abs()
    reduced = {}
    _reduce(0, {"down_proj": slice(0, 9)}, reduced)(weight)
    _assert_near(reduced[0, "down_proj"], terms, 0)


@pytest.mark.parametrize("scale", [SMALL, 300.0])
@pytest.mark.parametrize("dtype", HALVES)
def test_moments_of_activations(dtype, scale):
    inputs = _numbers((6, 11, 5), scale, dtype)
    moments = ChannelMoments("down_proj", 2, range(1), 5, torch.device("cpu"))
    contexts = GroupMoments(1, 1, 1, 5, torch.device("cpu"))
    moments.add(0, inputs)
    commit(contexts.prepare(0, slice(0, 1), inputs.flatten(0, 1), torch.ones(1, 66)))
    moments.finish_batch(torch.tensor([0, 0, 0, 1, 1, 1]).numpy())
    for part, rows in ((moments.moment[0, 0], inputs[:3]), (contexts.moment[0, 0, 0], inputs)):
        wide = rows.flatten(0, 1).double()
        _assert_near(part, (wide - wide.mean(dim=0)) ** 2, 0)
