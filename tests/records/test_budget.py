"""What decisions cost, meeting a target to the neuron, and widths in whole blocks of neurons."""

import itertools

import numpy as np
import pytest

from gprune.records import ModelShape, budget

SHAPES = [
    ModelShape(layers=2, neurons=12, heads=4, kv_heads=4, head_width=2, hidden=8),
    ModelShape(layers=3, neurons=13, heads=6, kv_heads=2, head_width=4, hidden=10),
    ModelShape(layers=1, neurons=200, heads=8, kv_heads=1, head_width=3, hidden=5),
    ModelShape(layers=5, neurons=31, heads=3, kv_heads=3, head_width=1, hidden=7),
]


def decision(shape, seed):
    """Which neurons and groups stay, about half of them, and the neurons' margins."""
    generator = np.random.default_rng(seed)
    margin = generator.normal(size=(shape.layers, shape.neurons))
    return margin >= 0, generator.random((shape.layers, shape.kv_heads)) < 0.5, margin


def loop_retention(shape, ffn, heads):
    """Weights of gate, up and down for each neuron; q, o, k and v for each group."""
    queries = shape.heads // shape.kv_heads * shape.head_width
    prices = (ffn, 3 * shape.hidden), (heads, 2 * queries * shape.hidden + 2 * shape.head_width * shape.hidden)
    units = [(keep, price) for mask, price in prices for row in mask for keep in row]
    return sum(price for keep, price in units if keep) / sum(price for _, price in units)


@pytest.mark.parametrize("shape", SHAPES)
def test_retention_is_the_loop(shape):
    ffn, heads, _ = decision(shape, 0)
    assert budget.retention(shape, ffn, heads) == pytest.approx(loop_retention(shape, ffn, heads), rel=1e-12)
    assert budget.retention(shape, np.ones_like(ffn), np.ones_like(heads)) == 1
    assert budget.retention(shape, np.zeros_like(ffn), np.zeros_like(heads)) == 0


@pytest.mark.parametrize(("value", "rounded"), [(0.5, 1), (1.5, 2), (2.5, 3), (-0.5, 0), (2.49, 2), (7.0, 7)])
def test_halves_go_up(value, rounded):
    assert budget.nearest_whole(value) == rounded


def test_keep_one_fills_only_empty_layers_with_their_best():
    mask = np.array([[False, False, False], [True, False, False]])
    scores = np.array([[1.0, 3.0, 2.0], [0.0, 9.0, 9.0]])
    floored = budget.keep_one(mask, scores)
    np.testing.assert_array_equal(floored, [[False, True, False], [True, False, False]])
    assert not mask.any(axis=1)[0]


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
    assert filled[0].sum() == 1 and filled[0, -1]
    margin = np.full((2, 12), -np.inf)
    filled = budget.fill_exactly(shape, np.ones((2, 12), bool), np.ones((2, 4), bool), margin, 0.5)
    neurons = (0.5 * shape.decoder_weights - 8 * shape.group_weights) / shape.neuron_weights
    assert filled.any(axis=1).all()
    assert filled.sum() == max(budget.nearest_whole(neurons), 2)


def wanted_neurons(shape, heads, target):
    return (target * shape.decoder_weights - heads.sum() * shape.group_weights) / shape.neuron_weights


def allowed(neurons, alignment):
    """Multiples of the alignment, and the full width."""
    return sorted({*range(alignment, neurons + 1, alignment), neurons})


@pytest.mark.parametrize("seed", range(12))
def test_no_other_aligned_widths_of_that_size_keep_more_margin(seed):
    shape = ModelShape(layers=3, neurons=20, heads=4, kv_heads=4, head_width=2, hidden=8)
    ffn, heads, margin = decision(shape, seed)
    masks = budget.meet_target(shape, ffn, heads, margin, 0.5, 4)
    best = np.sort(margin, axis=1)[:, ::-1].cumsum(axis=1)
    totals = {}
    for widths in itertools.product(allowed(20, 4), repeat=3):
        total = sum(best[layer, width - 1] for layer, width in enumerate(widths))
        totals[sum(widths)] = max(totals.get(sum(widths), -np.inf), total)
    neurons = wanted_neurons(shape, heads, 0.5)
    assert abs(masks.sum() - neurons) == min(abs(size - neurons) for size in totals)
    widths = masks.sum(axis=1)
    assert margin[masks].sum() == pytest.approx(sum(best[i, w - 1] for i, w in enumerate(widths)), rel=1e-12)
    exact = budget.fill_exactly(shape, ffn, heads, margin, 0.5).sum(axis=1)
    assert np.abs(widths - exact).max() < 4


def test_floors_push_the_other_layers_below_their_own_rounding():
    shape = ModelShape(layers=3, neurons=64, heads=1, kv_heads=1, head_width=1, hidden=4)
    margin = np.stack([np.linspace(1, 0.1, 64), np.linspace(0.5, -0.5, 64), np.linspace(-1, -2, 64)])
    heads = np.zeros((3, 1), bool)
    target = 96 * shape.neuron_weights / shape.decoder_weights
    exact = budget.fill_exactly(shape, margin >= 0, heads, margin, target).sum(axis=1)
    assert exact.tolist() == [64, 31, 1]
    for alignment, widths in ((32, [32, 32, 32]), (16, [64, 16, 16])):
        masks = budget.meet_target(shape, margin >= 0, heads, margin, target, alignment)
        assert masks.sum(axis=1).tolist() == widths


@pytest.mark.parametrize("alignment", [13, 64, 256])
def test_a_block_wider_than_the_layer_keeps_it_whole(alignment):
    shape = ModelShape(layers=5, neurons=13, heads=3, kv_heads=3, head_width=1, hidden=7)
    ffn, heads, margin = decision(shape, 2)
    assert budget.meet_target(shape, ffn, heads, margin, 0.4, alignment).all()
    assert budget.least_neurons(shape, alignment) == 13


def test_an_odd_width_may_be_kept_whole_or_cut_to_its_last_multiple():
    shape = ModelShape(layers=1, neurons=13, heads=1, kv_heads=1, head_width=1, hidden=1)
    margin, heads = np.linspace(1, -1, 13)[None], np.zeros((1, 1), bool)

    def width(neurons):
        target = neurons * shape.neuron_weights / shape.decoder_weights
        return int(budget.meet_target(shape, margin >= 0, heads, margin, target, 4).sum())

    assert [width(n) for n in (1, 4, 5, 6, 7, 10, 11, 12, 13)] == [4, 4, 4, 8, 8, 12, 12, 12, 13]


def test_infinite_and_equal_margins_still_give_aligned_widths():
    shape = ModelShape(layers=4, neurons=96, heads=4, kv_heads=4, head_width=2, hidden=8)
    heads = np.ones((4, 4), bool)
    for infinite in (0, 50):
        margin = np.where(np.arange(96) < infinite, np.inf, -np.inf)[None].repeat(4, 0)
        masks = budget.meet_target(shape, margin > 0, heads, margin, 0.5, 8)
        assert (masks.sum(axis=1) % 8 == 0).all()
        assert abs(masks.sum() - wanted_neurons(shape, heads, 0.5)) <= 4


@pytest.mark.parametrize(
    ("neurons", "target", "expected"),
    # 11,008 is 86 blocks; of 768, 384 are three, and 328 would lose more than a fifth; 704 is five and a half
    [(11008, 0.5, 128), (768, 0.5, 128), (768, 0.45, 1), (704, 0.5, 1), (128, 0.5, 1)],
)
def test_a_block_is_proposed_where_next_to_nothing_is_lost_by_it(neurons, target, expected):
    shape = ModelShape(layers=2, neurons=neurons, heads=8, kv_heads=8, head_width=32, hidden=256)
    assert budget.proposed_alignment(shape, target) == expected
