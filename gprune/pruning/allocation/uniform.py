"""Wanda-sp's allocation, a baseline of section 4: prune every layer at the same ratio by the scores of the layer.

A target is the fraction of the decoder's linear weights to keep, in (0, 1).
"""

from collections.abc import Callable

import numpy as np

from gprune.records import Array, ModelShape, PruningMasks, UnitScores, budget

Counts = tuple[int, int]
"""neurons and key/value groups that every layer keeps, if all layers have equal widths"""
LayerUnits = Callable[[int, Array, Array, int], tuple[Array, Array]]
"""(layer, (neurons,) energy, (heads * head_width,) energy, sequences) -> (neurons,) and (groups,) scores or masks."""


def allocate_layer(
    ffn: Array, heads: Array, shape: ModelShape, target: float, layer: int, equal: Counts | None = None
) -> tuple[Array, Array]:
    """Return (neurons,) and (key/value groups,) bool, True for a layer's highest scores; at least one of each.

    If the budget of a layer is not a whole number of neurons, some layers round up and some down, so that the total
    stays on target. `equal` replaces the budget by fixed counts.
    """
    neurons, groups = layer_counts(shape, target, layer, equal)
    return budget.highest(ffn, neurons), budget.highest(heads, groups)


def layer_counts(shape: ModelShape, target: float, layer: int, equal: Counts | None = None) -> tuple[int, int]:
    """Return the numbers of neurons and key/value groups that a layer keeps; these are `equal` if it is set."""
    if equal is not None:
        return equal
    groups, neurons = budget.uniform_counts(shape, target)
    return _neurons_of_layer(layer, neurons), groups


def _neurons_of_layer(layer: int, neurons: float) -> int:
    """Return the number of neurons that a layer keeps, from the mean number `neurons` per layer.

    The running total over layers is rounded, so that it stays on target.
    """
    return budget.nearest_whole((layer + 1) * neurons) - budget.nearest_whole(layer * neurons)


def allocate(scores: UnitScores, shape: ModelShape, target: float, equal: Counts | None = None) -> PruningMasks:
    """Return masks that prune every layer at one ratio by scores of the dense model; `method` is the metric's name."""
    layers = [
        allocate_layer(scores.ffn[layer], scores.heads[layer], shape, target, layer, equal)
        for layer in range(shape.layers)
    ]
    ffn, heads = (np.stack(part) for part in zip(*layers, strict=True))
    return build_masks(shape, ffn, heads, target, scores.metric)


def allocate_with_fixed_groups(
    scores: UnitScores, shape: ModelShape, target: float, heads: Array, equal: Counts | None = None
) -> PruningMasks:
    """Return masks that prune the neurons of every layer at one ratio, with fixed key/value groups.

    `heads` (layers, key/value groups) bool is not changed. The retention meets the target to within one neuron, if
    the fixed groups allow it.
    """
    ffn_weights = target * shape.decoder_weights - np.count_nonzero(heads) * shape.group_weights
    neurons = min(max(ffn_weights / shape.neuron_weights / shape.layers, 1.0), float(shape.neurons))
    counts = [_neurons_of_layer(layer, neurons) if equal is None else equal[0] for layer in range(shape.layers)]
    ffn = np.stack([budget.highest(row, count) for row, count in zip(scores.ffn, counts, strict=True)])
    return build_masks(shape, ffn, np.array(heads), target, scores.metric)


def layer_decision(score: LayerUnits, shape: ModelShape, target: float, equal: Counts | None = None) -> LayerUnits:
    """Return a function for layer-by-layer pruning that scores a layer and returns its masks (bool, True = kept)."""

    def decide(layer: int, ffn_energy: Array, attention_energy: Array, samples: int) -> tuple[Array, Array]:
        ffn, heads = score(layer, ffn_energy, attention_energy, samples)
        return allocate_layer(ffn, heads, shape, target, layer, equal)

    return decide


def build_masks(shape: ModelShape, ffn: Array, heads: Array, target: float, method: str = "wanda_sp") -> PruningMasks:
    """Return a record of (layers, units) masks (bool, True = kept) with the retention that they reach."""
    return PruningMasks(method, ffn, heads, budget.retention(shape, ffn, heads), target)
