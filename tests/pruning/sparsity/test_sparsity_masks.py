"""Masks, straight-through gradients and the mask hooks, against loops and against separate runs."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import long_tailed, masks, random_family, random_tokens

from gprune.models.tiny import tiny_decoder
from gprune.pruning.sparsity import mask_hooks
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.pruning.sparsity.batches import SubsetSampler, Teacher
from gprune.pruning.sparsity.mask_hooks import hook_decoder
from gprune.pruning.sparsity.masks import surrogate
from gprune.records import ModelShape, budget
from gprune.system import machine

SHAPES = [
    ModelShape(layers=2, neurons=12, heads=4, kv_heads=4, head_width=2, hidden=8),
    ModelShape(layers=3, neurons=13, heads=6, kv_heads=2, head_width=4, hidden=12),
    ModelShape(layers=1, neurons=7, heads=3, kv_heads=1, head_width=2, hidden=6),
]


def _decoder(shape, family="llama", dtype=torch.float32):
    return tiny_decoder(family, **asdict(shape), dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_masks_equal_the_equation_unit_by_unit(shape):
    (scores, head_scores, partition), family, thresholds = random_family(shape, 3, digits=1)
    values = thresholds.numpy()
    modules = [values[start : start + 3] for start in partition.offsets]
    ffn, heads = masks(scores, head_scores, partition.labels, modules, values[partition.modules :])
    for actual, expected in zip(family.split(family.margins(thresholds) >= 0), (ffn, heads), strict=True):
        np.testing.assert_array_equal(actual.numpy(), expected)
    assert float(family.retention(thresholds)) == pytest.approx(budget.retention(shape, ffn, heads), rel=1e-5)


def test_long_tailed_surrogate_is_that_of_liu_et_al():
    distance = np.linspace(-1.5, 1.5, 304)
    slopes = surrogate(torch.tensor(distance), "long_tailed").numpy()
    np.testing.assert_allclose(slopes, [long_tailed(x) for x in distance], rtol=1e-12)


def test_closed_gate_is_the_dense_model_and_hooks_go_even_after_an_error():
    shape = SHAPES[1]
    _, family, thresholds = random_family(shape, 3)
    decoder = _decoder(shape)
    ids = torch.arange(16).view(SUBSETS, 4)
    dense = decoder.hidden_states(ids)
    with pytest.raises(RuntimeError, match="stopped"), hook_decoder(decoder) as hooks:
        assert torch.equal(decoder.hidden_states(ids), dense)
        hooks.open(family, thresholds)
        assert not torch.equal(decoder.hidden_states(ids), dense)
        raise RuntimeError("stopped")
    assert torch.equal(decoder.hidden_states(ids), dense)
    assert all(not module._forward_pre_hooks for module in decoder.model.modules())


@pytest.mark.parametrize("family_name", ["llama", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_formed_again_gives_the_same_gradients_twice(dtype, family_name, monkeypatch):
    """As a model with code of its own has them, of which everything is kept."""
    shape = SHAPES[1]
    _, family, thresholds = random_family(shape, 3)
    ids = torch.tensor(np.random.default_rng(3).integers(0, 64, (2 * SUBSETS, 7)))

    def gradients():
        decoder = _decoder(shape, family_name, dtype=dtype)
        forwards = {name: module.forward for name, module in decoder.model.named_modules()}
        with hook_decoder(decoder) as hooks:
            hooks.open(family, thresholds)
            hidden = decoder.hidden_states(ids)
            loss = hidden.float().square().sum()
            first = torch.autograd.grad(loss, hooks.channels, retain_graph=True)
            second = torch.autograd.grad(loss, hooks.channels)
        assert {name: module.forward for name, module in decoder.model.named_modules()} == forwards
        return [hidden.detach(), *first, *second]

    formed_again = gradients()
    monkeypatch.setattr(mask_hooks, "_LIBRARY_PREFIX", "no such package")
    for actual, plain in zip(formed_again, gradients(), strict=True):
        assert torch.equal(actual, plain)


def _tokens(samples, length=4, seed=0):
    return random_tokens(samples, length, 64, np.random.default_rng(seed))


def test_subsets_are_fixed_disjoint_halves_of_each_text():
    sampler = SubsetSampler(_tokens(16), _tokens(16), 8, seed=0)
    subsets = [set() for _ in range(4)]
    for _ in range(5 * sampler.steps_per_epoch):
        for subset, part in enumerate(np.split(sampler.draw(), 4)):
            subsets[subset] |= set(part.tolist())
    assert [len(subset) for subset in subsets] == [8, 8, 8, 8]
    assert subsets[0] | subsets[1] == set(range(16)) and subsets[2] | subsets[3] == set(range(16, 32))


def test_the_shorter_text_is_gone_through_again_with_its_remainder_and_a_small_one_makes_smaller_batches():
    sampler = SubsetSampler(_tokens(40), _tokens(8), 8, seed=0)
    assert sampler.steps_per_epoch == 6
    counts = np.bincount(np.concatenate([sampler.draw() for _ in range(6)]), minlength=48)
    assert set(counts[40:]) == {3} and set(counts[:40]) == {0, 1}
    sampler = SubsetSampler(_tokens(10), _tokens(10), 8, seed=0)
    assert set(np.bincount(np.concatenate([sampler.draw() for _ in range(5)]), minlength=20)) == {2}
    sampler = SubsetSampler(_tokens(64), _tokens(7), 32, seed=0)
    assert sampler.quarter == 3 and len(sampler.draw()) == 12


def test_the_teacher_keeps_what_it_said(monkeypatch):
    decoder, ids = tiny_decoder(), torch.arange(12).view(3, 4)
    teacher = Teacher.build(decoder, sequences=6, length=4, epochs=2)
    first = teacher.hidden_states(np.array([5, 0, 2]), ids)
    monkeypatch.setattr(decoder, "hidden_states", lambda ids: pytest.fail("the decoder ran again"))
    again = teacher.hidden_states(np.array([2, 5]), ids[[2, 0]])
    assert torch.equal(again, first[[2, 0]])
    assert not again.requires_grad


@pytest.mark.parametrize(("epochs", "limit"), [(1, 2**30), (2, 0)])
def test_no_cache_where_it_is_of_no_use_or_too_large(monkeypatch, epochs, limit):
    monkeypatch.setattr(machine, "cache_budget", lambda: limit)
    decoder, ids = tiny_decoder(), torch.arange(8).view(2, 4)
    teacher = Teacher.build(decoder, sequences=6, length=4, epochs=epochs)
    assert teacher.cache is None
    expected = decoder.hidden_states(ids)
    for _ in range(2):
        assert torch.equal(teacher.hidden_states(np.array([0, 1]), ids), expected)
