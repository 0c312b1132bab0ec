"""Streaming moments in the hard cases: far from zero, constant, with outliers, in odd batches."""

import numpy as np
import pytest
import torch

from gprune.pruning.calibration.accumulators import ChannelMoments
from gprune.pruning.sparsity import activation_checkpointing


def stream(x, batches, **options):
    """Feeds (samples, length, channels) to one layer in batches of the given sizes."""
    part = ChannelMoments("down_proj", 1, range(1), x.shape[-1], x.device, **options)
    for batch in x.split(batches):
        part.add(0, batch)
        part.finish_batch(np.zeros(len(batch), int))
    return part.result()


def random_numbers(shape, mean=0.0, spread=1.0, dtype=torch.float32, seed=0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * spread + mean).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("mean", "spread"), [(0, 1), (100, 1), (-30, 0.3), (1e-3, 1e-6), (0, 1e-5), (0, 300)])
def test_moments_are_accurate_to_one_in_a_million(mean, spread, dtype):
    x = random_numbers((200, 16, 5), mean, spread, dtype)
    result = stream(x, [16] * 12 + [8])
    flat = x.double().numpy().reshape(-1, 5)
    energy = (flat**2).sum(0)
    assert np.abs(result.mean[0, 0] - flat.mean(0)).max() <= 1e-6 * np.sqrt(energy / len(flat)).max()
    np.testing.assert_allclose(result.moment[0, 0], ((flat - flat.mean(0)) ** 2).sum(0), rtol=1e-6)
    np.testing.assert_allclose(result.energy[0, 0], energy, rtol=1e-6)


def test_constant_and_dead_channels_have_no_variance():
    x = torch.zeros(6, 4, 3)
    x[..., 1] = 0.1
    x[..., 2] = 3.0
    result = stream(x, [4, 2], released=True)
    assert (result.moment >= 0).all()
    np.testing.assert_allclose(result.moment[0, 0], 0, atol=1e-12)
    np.testing.assert_allclose(result.released_fluctuation[0], 0, atol=1e-12)
    np.testing.assert_allclose(result.mean[0, 0], [0, np.float32(0.1), 3], rtol=1e-7)


@pytest.mark.parametrize("piece", [1, 100, 1 << 22])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mask_gradients_of_small_gradients(dtype, piece, monkeypatch):
    monkeypatch.setattr(activation_checkpointing, "_CONVERTED_SIZE", piece)
    # products of about 1e-7: float16 has none between 0 and 6e-8
    gradient = random_numbers((12, 7, 5), spread=1e-5, dtype=dtype)
    activations = random_numbers((12, 7, 5), spread=1e-2, dtype=dtype, seed=1)
    actual = activation_checkpointing.summed_products(gradient, activations)
    assert actual.dtype == torch.float32 and actual.shape == (activation_checkpointing.SUBSETS, 5)
    terms = (gradient.double() * activations.double()).unflatten(0, (activation_checkpointing.SUBSETS, -1))
    error = (actual.double() - terms.sum(dim=(1, 2))).abs()
    assert (error <= 1e-3 * terms.abs().sum(dim=(1, 2))).all()
