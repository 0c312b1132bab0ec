"""LLM-Pruner's block of layers and its ratio, against the published rule."""

import re

import numpy as np
import pytest

from gprune.pruning.allocation import llm_pruner
from gprune.records import ModelShape, UnitScores, budget
from gprune.system.errors import MethodError

SHAPES = [
    ModelShape(layers=6, neurons=96, heads=4, kv_heads=4, head_width=3, hidden=8),
    ModelShape(layers=3, neurons=61, heads=6, kv_heads=2, head_width=4, hidden=10),
    ModelShape(layers=1, neurons=101, heads=8, kv_heads=1, head_width=3, hidden=5),
    ModelShape(layers=32, neurons=31, heads=3, kv_heads=3, head_width=1, hidden=7),
    ModelShape(layers=12, neurons=97, heads=12, kv_heads=6, head_width=8, hidden=16),
]


def unit_scores(shape, seed=0):
    generator = np.random.default_rng(seed)
    ffn = generator.gamma(1.0, size=(shape.layers, shape.neurons))
    channels = generator.gamma(1.0, size=(shape.layers, shape.heads * shape.head_width))
    heads = channels.reshape(shape.layers, shape.kv_heads, -1).sum(-1)
    return UnitScores("llm_pruner", "t", ffn, heads, channels)


@pytest.mark.parametrize(
    ("layers", "first", "last"),
    [(32, 4, 30), (40, 5, 38), (12, 2, 11), (6, 1, 5), (3, 0, 2), (2, 0, 2), (1, 0, 1)],
)
def test_the_block_is_scaled_to_the_depth(layers, first, last):
    assert list(llm_pruner.pruned_layers(layers)) == list(range(first, last))


REACHABLE = [
    (shape, target)
    for shape in SHAPES
    for target in (0.3, 0.5, 0.8, 0.95)
    if target > llm_pruner.lowest_retention(shape)
]


@pytest.mark.parametrize(("shape", "target"), REACHABLE)
def test_one_ratio_between_meets_the_target_over_all(shape, target):
    scores = unit_scores(shape)
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
    whole = shape.decoder_weights / shape.layers
    for layer in block:
        kept = masks.ffn[layer].sum() * shape.neuron_weights + masks.heads[layer].sum() * shape.group_weights
        assert abs(kept - ratio * whole) <= shape.neuron_weights
    assert len(set(masks.heads[block].sum(1).tolist())) == 1
    assert np.ptp(masks.ffn[block].sum(1)) <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_the_highest_scores_of_each_layer_stay(shape):
    scores = unit_scores(shape, 1)
    masks = llm_pruner.allocate(scores, shape, 0.6)
    for kept, values in ((masks.ffn, scores.ffn), (masks.heads, scores.heads)):
        for layer in range(shape.layers):
            best = np.argsort(-values[layer])[: kept[layer].sum()]
            assert sorted(best) == np.flatnonzero(kept[layer]).tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_lowest_retention_is_reached_and_less_is_refused(shape):
    block = llm_pruner.pruned_layers(shape.layers)
    lowest = llm_pruner.lowest_retention(shape)
    masks = llm_pruner.allocate(unit_scores(shape), shape, lowest)
    np.testing.assert_array_equal(masks.ffn[block].sum(1), 1)
    np.testing.assert_array_equal(masks.heads[block].sum(1), 1)
    assert masks.retention == pytest.approx(lowest, rel=1e-12)
    with pytest.raises(MethodError, match=f"prunes {len(block)} of {shape.layers} layers") as caught:
        llm_pruner.allocate(unit_scores(shape), shape, lowest - 1e-6)
    offered = float(re.search(r"ask for ([0-9.]+)", str(caught.value)).group(1))
    assert lowest <= offered < lowest + 0.001
    assert abs(llm_pruner.allocate(unit_scores(shape), shape, offered).retention - offered) < 0.01
