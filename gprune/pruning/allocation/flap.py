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
    required_ffn, required_heads = np.zeros(ffn.shape, dtype=bool), np.full(heads.shape, shape.kv_heads == 1)
    # the loop ends, because every further round requires at least one more unit
    while True:
        kept_ffn, kept_heads = _cut_ranking(ffn, heads, required_ffn, required_heads, shape, target)
        if kept_ffn.any(axis=1).all() and kept_heads.any(axis=1).all():
            break
        required_ffn |= budget.keep_one(kept_ffn, ffn) & ~kept_ffn
        required_heads |= budget.keep_one(kept_heads, heads) & ~kept_heads
    retention = budget.retention(shape, kept_ffn, kept_heads)
    return PruningMasks("flap", kept_ffn, kept_heads, retention, target)


def _cut_ranking(
    ffn: Array, heads: Array, required_ffn: Array, required_heads: Array, shape: ModelShape, target: float
) -> tuple[Array, Array]:
    """Return the masks of neurons and groups: the required units, and the best others up to the target."""
    scores = np.concatenate([ffn.ravel(), heads.ravel()])
    required = np.concatenate([required_ffn.ravel(), required_heads.ravel()])
    weights = np.repeat([shape.neuron_weights, shape.group_weights], [ffn.size, heads.size])
    order = np.lexsort((-scores, ~required))
    # weights of the first 0, 1, 2, ... units of the ranking
    totals = np.concatenate([[0], np.cumsum(weights[order])])
    nearest = int(np.abs(totals - target * shape.decoder_weights).argmin())
    mask = np.zeros(len(order), dtype=bool)
    mask[order[: max(nearest, int(required.sum()))]] = True
    return mask[: ffn.size].reshape(ffn.shape), mask[ffn.size :].reshape(heads.shape)
