"""FLAP's single ranking and Wanda-sp's one ratio, against loops and over many shapes."""

import re
from itertools import accumulate

import numpy as np
import pytest
from made_records import random_shape

from gprune.pruning.allocation import flap, llm_pruner, uniform
from gprune.records import ModelShape, UnitScores, budget
from gprune.system.errors import MethodError

SHAPES = [
    ModelShape(layers=2, neurons=12, heads=4, kv_heads=4, head_width=2, hidden=8),
    ModelShape(layers=3, neurons=13, heads=6, kv_heads=2, head_width=4, hidden=10),
    ModelShape(layers=1, neurons=101, heads=8, kv_heads=1, head_width=3, hidden=5),
    ModelShape(layers=32, neurons=31, heads=3, kv_heads=3, head_width=1, hidden=7),
    ModelShape(layers=4, neurons=97, heads=12, kv_heads=6, head_width=8, hidden=16),
]
TARGETS = [0.2, 0.3, 0.5, 0.51, 0.8, 0.95]


def unit_scores(shape, seed=0, metric="flap"):
    """Random scores, of flap in layers that differ by orders of magnitude; llm_pruner sums a group's channels."""
    generator = np.random.default_rng(seed)
    ffn = generator.gamma(1.0, size=(shape.layers, shape.neurons))
    if metric == "flap":
        ffn = ffn * 10.0 ** generator.integers(-3, 4, (shape.layers, 1))
    channels = generator.gamma(1.0, size=(shape.layers, shape.heads * shape.head_width))
    groups = channels.reshape(shape.layers, shape.kv_heads, -1)
    return UnitScores(metric, "t", ffn, groups.sum(-1) if metric == "llm_pruner" else groups.mean(-1), channels)


def loop_flap(scores, shape, target):
    """AL-AM: z-score per layer (ddof 1), a head is the mean z of its channels, one ranking, cut by price."""
    units = []
    price = (2 * shape.heads // shape.kv_heads + 2) * shape.head_width / 3
    for layer in range(shape.layers):
        rows = scores.ffn[layer], scores.channels[layer]
        neurons, channels = ([(value - np.mean(row)) / np.std(row, ddof=1) for value in row] for row in rows)
        units += [(z, 1.0, "ffn", layer, i) for i, z in enumerate(neurons)]
        for g in range(shape.kv_heads):
            group = np.mean(channels[g * shape.group_channels : (g + 1) * shape.group_channels])
            units.append((group, price, "heads", layer, g))
    units.sort(key=lambda unit: -unit[0])
    total = sum(unit[1] for unit in units)
    prices = list(accumulate((unit[1] for unit in units), initial=0.0))
    cut = min(range(len(units) + 1), key=lambda k: abs(prices[k] - target * total))
    widths = {"ffn": shape.neurons, "heads": shape.kv_heads}
    masks = {part: np.zeros((shape.layers, width), bool) for part, width in widths.items()}
    for _, _, part, layer, i in units[:cut]:
        masks[part][layer, i] = True
    return masks


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_flap_is_the_loop_where_no_layer_is_emptied(shape, target):
    compared = 0
    for seed in range(12):
        scores = unit_scores(shape, seed)
        expected = loop_flap(scores, shape, target)
        if expected["ffn"].any(1).all() and expected["heads"].any(1).all():
            masks = flap.allocate(scores, shape, target)
            np.testing.assert_array_equal(masks.ffn, expected["ffn"])
            np.testing.assert_array_equal(masks.heads, expected["heads"])
            compared += 1
    assert compared or target < 0.5


def test_flap_keeps_the_best_unit_of_a_layer_the_cut_would_empty():
    shape = ModelShape(layers=2, neurons=40, heads=4, kv_heads=4, head_width=3, hidden=8)
    scores = unit_scores(shape, 0)
    # in layer 1 one neuron stands out and z-scores of the others are negative, of groups likewise
    ffn, channels = scores.ffn.copy(), scores.channels.copy()
    channels[1] = 1.0
    channels[1, 2] = 1.0 + 1e-9
    channels[0] = np.linspace(1, 2, 12)
    ffn[0] = np.linspace(1, 2, 40)
    scores = UnitScores("flap", "t", ffn, scores.heads, channels)
    masks = flap.allocate(scores, shape, 0.1)
    emptied = np.flatnonzero(~loop_flap(scores, shape, 0.1)["heads"].any(1))
    assert len(emptied)
    for layer in emptied:
        z = flap.standardize(channels)[layer].reshape(4, 3).mean(1)
        np.testing.assert_array_equal(masks.heads[layer], np.arange(4) == z.argmax())


def test_flap_of_constant_scores_still_meets_the_target():
    shape = SHAPES[1]
    channels = shape.heads * shape.head_width
    scores = UnitScores("flap", "t", np.ones((3, 13)), np.ones((3, 2)), np.zeros((3, channels)))
    masks = flap.allocate(scores, shape, 0.6)
    assert abs(masks.retention - 0.6) <= shape.group_weights / shape.decoder_weights
    assert masks.heads.any(axis=1).all()


def is_possible(shape, target):
    """Return True if one to all neurons a layer can meet the target with some number of groups."""
    left = target * shape.decoder_weights / shape.layers - np.arange(1, shape.kv_heads + 1) * shape.group_weights
    return ((left >= shape.neuron_weights) & (left <= shape.neurons * shape.neuron_weights)).any()


@pytest.mark.parametrize("seed", range(60))
def test_uniform_meets_the_target_within_a_group(seed):
    generator = np.random.default_rng(seed)
    shape, target = random_shape(generator), float(generator.uniform(0.15, 0.98))
    masks = uniform.allocate(unit_scores(shape, seed), shape, target)
    assert masks.ffn.any(axis=1).all()
    assert masks.heads.any(axis=1).all()
    assert masks.retention == budget.retention(shape, masks.ffn, masks.heads)
    if is_possible(shape, target):
        assert abs(masks.retention - target) * shape.decoder_weights <= shape.group_weights
    assert len(set(masks.heads.sum(axis=1).tolist())) == 1
    assert np.ptp(masks.ffn.sum(axis=1)) <= 1


@pytest.mark.parametrize("method", [uniform, llm_pruner])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_highest_scores_of_each_layer_stay(shape, method):
    scores = unit_scores(shape, 1, metric="llm_pruner")
    masks = method.allocate(scores, shape, 0.6)
    for mask, values in ((masks.ffn, scores.ffn), (masks.heads, scores.heads)):
        for layer in range(shape.layers):
            best = np.argsort(-values[layer])[: mask[layer].sum()]
            assert sorted(best) == np.flatnonzero(mask[layer]).tolist()


DEEP = [
    ModelShape(layers=6, neurons=96, heads=4, kv_heads=4, head_width=3, hidden=8),
    *SHAPES[1:4],
    ModelShape(layers=12, neurons=97, heads=12, kv_heads=6, head_width=8, hidden=16),
]


@pytest.mark.parametrize(
    ("layers", "first", "last"), [(32, 4, 30), (40, 5, 38), (12, 2, 11), (6, 1, 5), (3, 0, 2), (2, 0, 2), (1, 0, 1)]
)
def test_the_block_is_scaled_to_the_depth(layers, first, last):
    assert list(llm_pruner.pruned_layers(layers)) == list(range(first, last))


REACHABLE = [
    (shape, target) for shape in DEEP for target in (0.3, 0.5, 0.8, 0.95) if target > llm_pruner.lowest_retention(shape)
]


@pytest.mark.parametrize(("shape", "target"), REACHABLE)
def test_one_ratio_between_meets_the_target_over_all(shape, target):
    scores = unit_scores(shape, metric="llm_pruner")
    masks = llm_pruner.allocate(scores, shape, target)
    block = list(llm_pruner.pruned_layers(shape.layers))
    outside = [layer for layer in range(shape.layers) if layer not in block]
    assert masks.ffn[outside].all() and masks.heads[outside].all()
    assert masks.method == "llm_pruner" and masks.target == target
    assert masks.retention == budget.retention(shape, masks.ffn, masks.heads)
    # the nearest whole number of neurons
    assert abs(masks.retention - target) * shape.decoder_weights <= 0.5001 * shape.neuron_weights
    # the layers between keep 1 - (1 - target) * layers / pruned of their weights, all the same
    ratio = 1 - (1 - target) * shape.layers / len(block)
    layer_weights = shape.decoder_weights / shape.layers
    for layer in block:
        remaining = masks.ffn[layer].sum() * shape.neuron_weights + masks.heads[layer].sum() * shape.group_weights
        assert abs(remaining - ratio * layer_weights) <= shape.neuron_weights
    assert len(set(masks.heads[block].sum(1).tolist())) == 1
    assert np.ptp(masks.ffn[block].sum(1)) <= 1


@pytest.mark.parametrize("shape", DEEP)
def test_the_lowest_retention_is_reached_and_less_is_refused(shape):
    block = llm_pruner.pruned_layers(shape.layers)
    lowest = llm_pruner.lowest_retention(shape)
    masks = llm_pruner.allocate(unit_scores(shape, metric="llm_pruner"), shape, lowest)
    np.testing.assert_array_equal(masks.ffn[block].sum(1), 1)
    np.testing.assert_array_equal(masks.heads[block].sum(1), 1)
    assert masks.retention == pytest.approx(lowest, rel=1e-12)
    with pytest.raises(MethodError, match=f"prunes {len(block)} of {shape.layers} layers") as caught:
        llm_pruner.allocate(unit_scores(shape, metric="llm_pruner"), shape, lowest - 1e-6)
    offered = float(re.search(r"ask for ([0-9.]+)", str(caught.value)).group(1))
    assert lowest <= offered < lowest + 0.001
    assert abs(llm_pruner.allocate(unit_scores(shape, metric="llm_pruner"), shape, offered).retention - offered) < 0.01
