"""FLAP's allocation (AL-AM): one ranking of all neurons and heads of all layers, cut at the target.

A baseline of section 4. Scores are standardised within the layer, so that layers compete with each other.
"""

import numpy as np

from gprune.pruning.ranking import standardize
from gprune.records import Array, ModelShape, PruningMasks, UnitScores, budget


def allocate(scores: UnitScores, shape: ModelShape, target: float) -> PruningMasks:
    """Keep the units with the highest standardized scores of the whole model, by FLAP or another metric.

    The ranking is cut where the kept weights are nearest the target. A layer that would lose all neurons or all
    key/value groups keeps the best of them, and the ranking is cut again. The retention misses the target by at most
    half a key/value group, unless these minimums alone exceed it.
    """
    ffn = standardize(scores.ffn)
    # a head is the mean of standardized channels and not standardized again, as in FLAP's code
    channels = standardize(scores.channels)
    heads = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels).mean(axis=-1)
    # the only group of a layer is always kept; it is not ranked, because its weight would shift the cut
    keep_ffn, keep_heads = np.zeros(ffn.shape, dtype=bool), np.full(heads.shape, shape.kv_heads == 1)
    # the loop ends, because every round pins at least one more unit
    while True:
        kept_ffn, kept_heads = _cut_ranking(ffn, heads, keep_ffn, keep_heads, shape, target)
        if kept_ffn.any(axis=1).all() and kept_heads.any(axis=1).all():
            break
        keep_ffn |= budget.keep_one(kept_ffn, ffn) & ~kept_ffn
        keep_heads |= budget.keep_one(kept_heads, heads) & ~kept_heads
    retention = budget.retention(shape, kept_ffn, kept_heads)
    return PruningMasks("flap", kept_ffn, kept_heads, retention, target)


def _cut_ranking(
    ffn: Array, heads: Array, keep_ffn: Array, keep_heads: Array, shape: ModelShape, target: float
) -> tuple[Array, Array]:
    """Return the masks of neurons and groups: required units first, then the best units up to the target."""
    standard = np.concatenate([ffn.ravel(), heads.ravel()])
    required = np.concatenate([keep_ffn.ravel(), keep_heads.ravel()])
    weights = np.repeat([shape.neuron_weights, shape.group_weights], [ffn.size, heads.size])
    order = np.lexsort((-standard, ~required))
    total = np.concatenate([[0], np.cumsum(weights[order])])
    nearest = int(np.abs(total - target * shape.decoder_weights).argmin())
    mask = np.zeros(len(order), dtype=bool)
    mask[order[: max(nearest, int(required.sum()))]] = True
    return mask[: ffn.size].reshape(ffn.shape), mask[ffn.size :].reshape(heads.shape)
