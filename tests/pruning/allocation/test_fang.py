"""FANG's ratios and masks against loops, and over many shapes."""

import numpy as np
import pytest
from allocation.test_baseline_allocation import TARGETS, unit_scores

from gprune.pruning.allocation import fang
from gprune.pruning.modules.functional_groups import functional_groups
from gprune.records import ModelShape, budget

SHAPES = [
    ModelShape(layers=6, neurons=96, heads=4, kv_heads=4, head_width=3, hidden=8),
    ModelShape(layers=3, neurons=61, heads=6, kv_heads=2, head_width=4, hidden=10),
    ModelShape(layers=1, neurons=101, heads=8, kv_heads=1, head_width=3, hidden=5),
    ModelShape(layers=32, neurons=31, heads=3, kv_heads=3, head_width=1, hidden=7),
    ModelShape(layers=2, neurons=13, heads=2, kv_heads=2, head_width=2, hidden=4),
]


def grouped(shape, contexts=7, seed=0):
    generator = np.random.default_rng(seed + 100)
    return functional_groups(generator.gamma(1.0, size=(shape.layers, contexts, shape.neurons)), "balanced")


def changes(shape, seed=0):
    return np.random.default_rng(seed + 200).gamma(1.0, size=shape.layers)


def loop_ratios(change, retention):
    """p_l = p - (F_l - mean F), F = min-max-scaled change * 2 * 0.5 p; clipped, the rest shifted alike."""
    p = 1 - retention
    low, high = min(change), max(change)
    scaled = [(c - low) / (high - low) * 2 * 0.5 * p if high > low else 0.0 for c in change]
    raw = [p - (f - sum(scaled) / len(scaled)) for f in scaled]
    fixed = {}
    while True:
        free = [i for i in range(len(raw)) if i not in fixed]
        shift = (p * len(raw) - sum(fixed.values()) - sum(raw[i] for i in free)) / len(free)
        over = [i for i in free if raw[i] + shift > 1]
        if not over:
            return [fixed.get(i, raw[i] + shift) for i in range(len(raw))]
        fixed |= dict.fromkeys(over, 1.0)


@pytest.mark.parametrize("target", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("seed", range(5))
def test_ratios_are_those_of_the_loop(target, seed):
    change = np.random.default_rng(seed).gamma(0.7, size=9)
    ratios = fang.layer_ratios(change, target)
    np.testing.assert_allclose(ratios, loop_ratios(change.tolist(), target), rtol=1e-12, atol=1e-12)
    assert ratios.min() >= 0 and ratios.max() <= 1
    assert ratios.mean() == pytest.approx(1 - target, rel=1e-12)
    assert (np.argsort(-ratios, kind="stable")[-1] == change.argmax()).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_target_is_met_within_a_neuron_and_no_layer_is_empty(shape, target):
    for seed in range(6):
        masks = fang.allocate(
            unit_scores(shape, seed, "twflap"), grouped(shape, seed=seed), changes(shape, seed), shape, target
        )
        assert masks.method == "fang" and masks.target == target
        assert masks.ffn.any(axis=1).all() and masks.heads.any(axis=1).all()
        assert masks.retention == budget.retention(shape, masks.ffn, masks.heads)
        floor = shape.layers * (shape.group_weights + shape.neuron_weights) / shape.decoder_weights
        # the nearest whole number of neurons
        missed = abs(masks.retention - max(target, floor)) * shape.decoder_weights
        assert missed <= 0.5001 * shape.neuron_weights


@pytest.mark.parametrize("target", [0.5, 0.8])
@pytest.mark.parametrize("shape", SHAPES[:3])
def test_every_layer_is_at_its_ratio(shape, target):
    change = changes(shape)
    masks = fang.allocate(unit_scores(shape, metric="twflap"), grouped(shape), change, shape, target)
    expected = 1 - fang.layer_ratios(change, target)
    layer_weights = shape.decoder_weights / shape.layers
    assert (expected * layer_weights >= shape.group_weights + shape.neuron_weights).all()
    for layer in range(shape.layers):
        remaining = masks.ffn[layer].sum() * shape.neuron_weights + masks.heads[layer].sum() * shape.group_weights
        assert abs(remaining - expected[layer] * layer_weights) < shape.neuron_weights


@pytest.mark.parametrize("shape", SHAPES[:4])
@pytest.mark.parametrize("target", [0.09, 0.3, 0.5, 0.8])
def test_groups_lose_the_same_share_and_the_shared_group_nothing(shape, target):
    scores, groups = unit_scores(shape, metric="twflap"), grouped(shape)
    masks = fang.allocate(scores, groups, changes(shape), shape, target)
    for layer in range(shape.layers):
        mask, labels = masks.ffn[layer], groups.labels[layer]
        shared = labels == 7
        removed = int((~mask).sum())
        if removed <= int((~shared).sum()):
            assert mask[shared].all()
            # each group at removed / (neurons outside the shared group): p_l * 8 / 7 of an even layer
            for group in range(7):
                members = labels == group
                expected = removed * members.sum() / (~shared).sum()
                assert abs((members & ~mask).sum() - expected) < 1
        else:
            assert not mask[~shared].any()
        for group in range(8):
            members = np.flatnonzero(labels == group)
            best = members[np.argsort(-scores.ffn[layer, members])][: mask[members].sum()]
            assert sorted(best) == members[mask[members]].tolist()


def test_what_the_floors_cost_is_taken_from_the_other_layers():
    shape = ModelShape(layers=4, neurons=40, heads=4, kv_heads=4, head_width=3, hidden=8)
    change = np.array([0.0, 0.0, 1.0, 1.0])
    np.testing.assert_allclose(fang.layer_ratios(change, 0.3), [1, 1, 0.4, 0.4], rtol=1e-12)
    masks = fang.allocate(unit_scores(shape, metric="twflap"), grouped(shape), change, shape, 0.3)
    # the shared group stays: an eighth of the neurons
    labels = grouped(shape).labels
    np.testing.assert_array_equal(masks.ffn[:2], labels[:2] == labels.max())
    np.testing.assert_array_equal(masks.ffn.sum(1)[:2], 5)
    np.testing.assert_array_equal(masks.heads.sum(1)[:2], 1)
    remaining = masks.ffn.sum(1) * shape.neuron_weights + masks.heads.sum(1) * shape.group_weights
    assert (remaining[2:] < 0.6 * shape.decoder_weights / 4 - shape.neuron_weights).all()
    assert abs(remaining.sum() - 0.3 * shape.decoder_weights) <= shape.neuron_weights


def test_key_value_groups_give_too_where_neurons_do_not_make_up_for_the_floors():
    # one group weighs as much as all neurons of a layer: a quarter of it
    shape = ModelShape(layers=8, neurons=16, heads=3, kv_heads=3, head_width=12, hidden=6)
    change = np.repeat([0.0, 1.0], 4)
    np.testing.assert_allclose(fang.layer_ratios(change, 0.3), np.repeat([1.0, 0.4], 4), rtol=1e-12)
    masks = fang.allocate(unit_scores(shape, metric="twflap"), grouped(shape), change, shape, 0.3)
    # alone, a ratio of 0.4 would keep two groups
    np.testing.assert_array_equal(masks.heads.sum(1), 1)
    assert abs(masks.retention - 0.3) * shape.decoder_weights <= 0.5001 * shape.neuron_weights


def test_a_target_below_the_floors_keeps_one_of_each():
    shape = SHAPES[4]
    masks = fang.allocate(unit_scores(shape, metric="twflap"), grouped(shape), changes(shape), shape, 0.01)
    np.testing.assert_array_equal(masks.ffn.sum(1), 1)
    np.testing.assert_array_equal(masks.heads.sum(1), 1)
