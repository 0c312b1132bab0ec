"""Wanda-sp's allocation, a baseline of section 4: every layer is pruned at one ratio, from its own scores.

Targets are the fraction of the decoder's linear weights to keep, in (0, 1).
"""

from collections.abc import Callable

import numpy as np

from gprune.records import Array, ModelShape, PruningMasks, UnitScores, budget

Counts = tuple[int, int]
"""neurons and key/value groups that every layer keeps, where all are to keep as many"""
LayerUnits = Callable[[int, Array, Array, int], tuple[Array, Array]]
"""(layer, (neurons,) energy, (heads * head_width,) energy, sequences) to what neurons and groups have."""


def allocate_layer(
    ffn: Array, heads: Array, shape: ModelShape, target: float, layer: int, equal: Counts | None = None
) -> tuple[Array, Array]:
    """Return (neurons,) and (key/value groups,) bool, True for a layer's highest scores; at least one of each.

    Where the budget is not a whole number of neurons, some layers round up and some down, so that the total does
    not drift.
    """
    neurons, groups = layer_counts(shape, target, layer, equal)
    return budget.highest(ffn, neurons), budget.highest(heads, groups)


def layer_counts(shape: ModelShape, target: float, layer: int, equal: Counts | None = None) -> tuple[int, int]:
    """Return the neurons and key/value groups that a layer keeps: see `allocate_layer`, or those of `equal` widths."""
    if equal is not None:
        return equal
    groups, neurons = budget.uniform_counts(shape, target)
    return _share(layer, neurons), groups


def _share(layer: int, neurons: float) -> int:
    """Return the neurons of one layer, so that the running total over layers stays on target."""
    return budget.nearest_whole((layer + 1) * neurons) - budget.nearest_whole(layer * neurons)


def allocate(scores: UnitScores, shape: ModelShape, target: float, equal: Counts | None = None) -> PruningMasks:
    """Prune every layer at one ratio, from scores of the dense model by a metric, which names the masks."""
    layers = [
        allocate_layer(scores.ffn[layer], scores.heads[layer], shape, target, layer, equal)
        for layer in range(shape.layers)
    ]
    ffn, heads = (np.stack(part) for part in zip(*layers, strict=True))
    return masks(shape, ffn, heads, target, scores.metric)


def allocate_around(
    scores: UnitScores, shape: ModelShape, target: float, heads: Array, equal: Counts | None = None
) -> PruningMasks:
    """Prune the neurons of every layer at one ratio, such that given key/value groups meet the target.

    `heads` (layers, key/value groups) stays as it is; the masks are as near the target as one neuron allows,
    or as near as the given groups leave possible.
    """
    left = target * shape.decoder_weights - np.count_nonzero(heads) * shape.group_weights
    neurons = min(max(left / shape.neuron_weights / shape.layers, 1.0), float(shape.neurons))
    counts = [_share(layer, neurons) if equal is None else equal[0] for layer in range(shape.layers)]
    ffn = np.stack([budget.highest(row, count) for row, count in zip(scores.ffn, counts, strict=True)])
    return masks(shape, ffn, np.array(heads), target, scores.metric)


def layer_decision(score: LayerUnits, shape: ModelShape, target: float, equal: Counts | None = None) -> LayerUnits:
    """Return the decision of a layer-by-layer pass: score a layer and keep its best units (bool, True = kept)."""

    def decide(layer: int, ffn_energy: Array, attention_energy: Array, samples: int) -> tuple[Array, Array]:
        ffn, heads = score(layer, ffn_energy, attention_energy, samples)
        return allocate_layer(ffn, heads, shape, target, layer, equal)

    return decide


def masks(shape: ModelShape, ffn: Array, heads: Array, target: float, method: str = "wanda_sp") -> PruningMasks:
    """Put the bool decisions of all layers, True = kept, into one record with the retention they reach."""
    return PruningMasks(method, ffn, heads, budget.retention(shape, ffn, heads), target)
