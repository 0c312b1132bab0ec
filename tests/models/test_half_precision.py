"""Every reduction of half-precision numbers is as good as float64, also where gradients are small."""

import pytest
import torch

from gprune.models.oom_backoff import commit
from gprune.pruning.calibration.accumulators import ChannelMoments
from gprune.pruning.calibration.context_statistics import GroupMoments
from gprune.pruning.calibration.gradients import _reduce
from gprune.pruning.sparsity import activation_checkpointing

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
    _reduce((0, "down_proj"), reduced)(weight)
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
