"""Widths that hardware likes: the margin by which a baseline kept a neuron, and the rounding that follows."""

from dataclasses import replace

import numpy as np

from gprune.pruning.ranking import module_means, rank_quantile_within
from gprune.records import Array, ModelShape, PruningMasks, budget


def aligned(decided: PruningMasks, margins: Array, shape: ModelShape, alignment: int) -> PruningMasks:
    """Rounds the widths to an alignment, the neurons nearest the cut first.

    Args:
        decided: what a baseline keeps.
        margins: (layers, neurons) by which neurons were kept (positive) or removed (negative).
        shape: sizes of the model.
        alignment: FFN widths become multiples of it; 1 changes nothing.
    """
    if alignment == 1:
        return decided
    ffn = budget.align(shape, decided.ffn, decided.heads, margins, decided.target, alignment)
    return replace(decided, ffn=ffn, retention=budget.retention(shape, ffn, decided.heads))


def margin(scores: Array, kept: Array, labels: Array | None = None) -> Array:
    """Rank quantile of a neuron in its layer, or in its group there, above the share that was removed.

    Args:
        scores: (layers, neurons) importance.
        kept: (layers, neurons) bool.
        labels: (layers, neurons) groups that were cut each by itself; none where a layer was cut as a whole.

    Returns:
        (layers, neurons) in [-1, 1].

    Ranks make scores of different layers comparable, and each layer or group has its cut at zero.
    """
    layers, neurons = scores.shape
    groups = np.zeros((layers, neurons), dtype=np.int64) if labels is None else labels
    rows = []
    for row, keep, label in zip(scores, kept, groups, strict=True):
        share = module_means(keep.astype(np.float64), label)[label]
        rows.append(rank_quantile_within(row, label) - (1 - share))
    return np.stack(rows)
