"""What decisions cost, and meeting a target to the neuron."""

import numpy as np
import pytest

from gprune.records import ModelShape, budget

SHAPES = [
    ModelShape(layers=2, neurons=12, heads=4, kv_heads=4, head_width=2, hidden=8),
    ModelShape(layers=3, neurons=13, heads=6, kv_heads=2, head_width=4, hidden=10),
    ModelShape(layers=1, neurons=200, heads=8, kv_heads=1, head_width=3, hidden=5),
    ModelShape(layers=5, neurons=31, heads=3, kv_heads=3, head_width=1, hidden=7),
]


def decision(shape, seed, density=0.5):
    generator = np.random.default_rng(seed)
    margin = generator.normal(size=(shape.layers, shape.neurons)) + (density - 0.5) * 4
    heads = generator.random((shape.layers, shape.kv_heads)) < density
    return margin >= 0, heads, margin


def loop_retention(shape, ffn, heads):
    """Weights of gate, up and down for each neuron; q, o, k and v for each group."""
    kept = total = 0
    for layer in range(shape.layers):
        for keep in ffn[layer]:
            total += 3 * shape.hidden
            kept += 3 * shape.hidden * keep
        for keep in heads[layer]:
            queries = shape.heads // shape.kv_heads * shape.head_width
            weights = 2 * queries * shape.hidden + 2 * shape.head_width * shape.hidden
            total += weights
            kept += weights * keep
    return kept / total


@pytest.mark.parametrize("shape", SHAPES)
def test_retention_is_the_loop(shape):
    ffn, heads, _ = decision(shape, 0)
    assert budget.retention(shape, ffn, heads) == pytest.approx(loop_retention(shape, ffn, heads), rel=1e-12)
    assert budget.retention(shape, np.ones_like(ffn), np.ones_like(heads)) == 1
    assert budget.retention(shape, np.zeros_like(ffn), np.zeros_like(heads)) == 0


@pytest.mark.parametrize(("value", "whole"), [(0.5, 1), (1.5, 2), (2.5, 3), (-0.5, 0), (2.49, 2), (7.0, 7)])
def test_halves_go_up(value, whole):
    assert budget.nearest_whole(value) == whole


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("retention", [0.05, 0.3, 0.5, 0.77, 0.99])
def test_uniform_counts_meet_one_layers_budget(shape, retention):
    groups, neurons = budget.uniform_counts(shape, retention)
    assert 1 <= groups <= shape.kv_heads
    assert 1 <= neurons <= shape.neurons
    layer_budget = retention * shape.decoder_weights / shape.layers
    if 1 < neurons < shape.neurons:
        met = groups * shape.group_weights + neurons * shape.neuron_weights
        assert met == pytest.approx(layer_budget, rel=1e-12)


def test_keep_one_fills_only_empty_layers_with_their_best():
    mask = np.array([[False, False, False], [True, False, False]])
    scores = np.array([[1.0, 3.0, 2.0], [0.0, 9.0, 9.0]])
    floored = budget.keep_one(mask, scores)
    np.testing.assert_array_equal(floored, [[False, True, False], [True, False, False]])
    assert not mask.any(axis=1)[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", [0.1, 0.4, 0.5, 0.55, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_fill_exactly_meets_the_target_to_half_a_neuron(shape, target, seed):
    ffn, heads, margin = decision(shape, seed, density=0.3 + 0.2 * seed)
    filled = budget.fill_exactly(shape, ffn, heads, margin, target)
    assert filled.any(axis=1).all()
    fixed = heads.sum() * shape.group_weights
    wanted = (target * shape.decoder_weights - fixed) / shape.neuron_weights
    possible = min(max(wanted, shape.layers), shape.layers * shape.neurons)
    assert abs(filled.sum() - possible) <= 0.5


@pytest.mark.parametrize("change", [-7, -1, 1, 9])
def test_fill_exactly_moves_the_neurons_nearest_their_thresholds(change):
    shape = SHAPES[1]
    ffn, heads, margin = decision(shape, 4)
    target = budget.retention(shape, ffn, heads) + change * shape.neuron_weights / shape.decoder_weights
    filled = budget.fill_exactly(shape, ffn, heads, margin, target)
    side = np.abs(margin[ffn == (change < 0)])
    expected = np.where((ffn == (change < 0)) & (np.abs(margin) <= np.sort(side)[abs(change) - 1]), ~ffn, ffn)
    np.testing.assert_array_equal(filled, expected)
    assert (filled != ffn).sum() == abs(change)


def test_fill_exactly_at_its_edges():
    shape = SHAPES[0]
    margin = np.stack([np.linspace(-3, -2, 12), np.linspace(-1, 1, 12)])
    filled = budget.fill_exactly(shape, margin > 0, np.zeros((2, 4), bool), margin, 0.25)
    assert filled[0].sum() == 1
    assert filled[0, -1]
    shape = SHAPES[0]
    margin = np.full((2, 12), -np.inf)
    filled = budget.fill_exactly(shape, np.ones((2, 12), bool), np.ones((2, 4), bool), margin, 0.5)
    wanted = (0.5 * shape.decoder_weights - 8 * shape.group_weights) / shape.neuron_weights
    assert filled.any(axis=1).all()
    assert filled.sum() == max(budget.nearest_whole(wanted), 2)
