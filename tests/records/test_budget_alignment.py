"""Widths in whole blocks of neurons: multiples, floors, nearness to the target, and which blocks move."""

import itertools

import numpy as np
import pytest

from gprune.records import ModelShape, budget

SHAPES = [
    ModelShape(layers=4, neurons=96, heads=4, kv_heads=4, head_width=2, hidden=8),
    ModelShape(layers=3, neurons=61, heads=6, kv_heads=2, head_width=4, hidden=10),
    ModelShape(layers=1, neurons=200, heads=8, kv_heads=1, head_width=3, hidden=5),
    ModelShape(layers=5, neurons=13, heads=3, kv_heads=3, head_width=1, hidden=7),
]


def decision(shape, seed, density=0.5):
    generator = np.random.default_rng(seed)
    margin = generator.normal(size=(shape.layers, shape.neurons)) + (density - 0.5) * 4
    heads = generator.random((shape.layers, shape.kv_heads)) < 0.5
    return margin >= 0, heads, margin


def wanted_neurons(shape, heads, target):
    return (target * shape.decoder_weights - heads.sum() * shape.group_weights) / shape.neuron_weights


def allowed(neurons, alignment):
    """Multiples of the alignment, and the full width."""
    return sorted({*range(alignment, neurons + 1, alignment), neurons})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("alignment", [2, 8, 16, 32])
@pytest.mark.parametrize("target", [0.1, 0.4, 0.55, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_widths_are_multiples_within_half_a_block_of_the_target(shape, alignment, target, seed):
    ffn, heads, margin = decision(shape, seed, density=0.3 + 0.2 * seed)
    widths = budget.align(shape, ffn, heads, margin, target, alignment).sum(axis=1)
    assert set(widths) <= set(allowed(shape.neurons, alignment))
    least = shape.layers * min(alignment, shape.neurons)
    possible = min(max(wanted_neurons(shape, heads, target), least), shape.layers * shape.neurons)
    assert abs(widths.sum() - possible) <= alignment / 2


@pytest.mark.parametrize("seed", range(12))
def test_no_other_aligned_widths_of_that_size_keep_more_margin(seed):
    shape = ModelShape(layers=3, neurons=20, heads=4, kv_heads=4, head_width=2, hidden=8)
    ffn, heads, margin = decision(shape, seed)
    kept = budget.align(shape, ffn, heads, margin, 0.5, 4)
    best = np.sort(margin, axis=1)[:, ::-1].cumsum(axis=1)
    totals = {}
    for widths in itertools.product(allowed(20, 4), repeat=3):
        total = sum(best[layer, width - 1] for layer, width in enumerate(widths))
        totals[sum(widths)] = max(totals.get(sum(widths), -np.inf), total)
    wanted = wanted_neurons(shape, heads, 0.5)
    assert abs(kept.sum() - wanted) == min(abs(size - wanted) for size in totals)
    widths = kept.sum(axis=1)
    assert margin[kept].sum() == pytest.approx(sum(best[i, w - 1] for i, w in enumerate(widths)), rel=1e-12)
    exact = budget.fill_exactly(shape, ffn, heads, margin, 0.5).sum(axis=1)
    assert np.abs(widths - exact).max() < 4


def test_floors_push_the_other_layers_below_their_own_rounding():
    shape = ModelShape(layers=3, neurons=64, heads=1, kv_heads=1, head_width=1, hidden=4)
    margin = np.stack([np.linspace(1, 0.1, 64), np.linspace(0.5, -0.5, 64), np.linspace(-1, -2, 64)])
    heads = np.zeros((3, 1), bool)
    target = 96 * shape.neuron_weights / shape.decoder_weights
    exact = budget.fill_exactly(shape, margin >= 0, heads, margin, target).sum(axis=1)
    assert exact.tolist() == [64, 31, 1]
    kept = budget.align(shape, margin >= 0, heads, margin, target, 32)
    assert kept.sum(axis=1).tolist() == [32, 32, 32]
    kept = budget.align(shape, margin >= 0, heads, margin, target, 16)
    assert kept.sum(axis=1).tolist() == [64, 16, 16]


@pytest.mark.parametrize("alignment", [13, 64, 256])
def test_a_block_wider_than_the_layer_keeps_it_whole(alignment):
    shape = SHAPES[3]
    ffn, heads, margin = decision(shape, 2)
    assert budget.align(shape, ffn, heads, margin, 0.4, alignment).all()
    assert budget.least_neurons(shape, alignment) == 13


def test_an_odd_width_may_be_kept_whole_or_cut_to_its_last_multiple():
    shape = ModelShape(layers=1, neurons=13, heads=1, kv_heads=1, head_width=1, hidden=1)
    margin, heads = np.linspace(1, -1, 13)[None], np.zeros((1, 1), bool)

    def width(neurons):
        target = neurons * shape.neuron_weights / shape.decoder_weights
        return int(budget.align(shape, margin >= 0, heads, margin, target, 4).sum())

    assert [width(n) for n in (1, 4, 5, 6, 7, 10, 11, 12, 13)] == [4, 4, 4, 8, 8, 12, 12, 12, 13]


def test_infinite_and_equal_margins_still_give_aligned_widths():
    shape = SHAPES[0]
    heads = np.ones((4, 4), bool)
    for margin in (
        np.full((4, 96), -np.inf),
        np.where(np.arange(96) < 50, np.inf, -np.inf)[None].repeat(4, 0),
    ):
        kept = budget.align(shape, margin > 0, heads, margin, 0.5, 8)
        assert (kept.sum(axis=1) % 8 == 0).all()
        assert abs(kept.sum() - wanted_neurons(shape, heads, 0.5)) <= 4
