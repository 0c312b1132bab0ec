"""Round the FFN widths of a baseline to multiples of a block, by the margins of its neurons."""

from dataclasses import replace

import numpy as np

from gprune.pruning.ranking import module_means, rank_quantile_within
from gprune.records import Array, ModelShape, PruningMasks, budget


def align_widths(masks: PruningMasks, margins: Array, shape: ModelShape, alignment: int) -> PruningMasks:
    """Round FFN widths to multiples of `alignment`, the neurons nearest the cut first; 1 changes nothing.

    `margins` (layers, neurons) say by how much neurons were kept (positive) or removed (negative).
    """
    if alignment == 1:
        return masks
    ffn = budget.align(shape, masks.ffn, masks.heads, margins, masks.target, alignment)
    return replace(masks, ffn=ffn, retention=budget.retention(shape, ffn, masks.heads))


def margin(scores: Array, mask: Array, labels: Array | None = None) -> Array:
    """Return (layers, neurons) rank quantile in the layer, or its group there, above the share removed; in [-1, 1].

    `labels` are groups that were cut each by itself; none where a layer was cut as a whole. Ranks make scores
    of different layers comparable, and each layer or group has its cut at zero.
    """
    layers, neurons = scores.shape
    groups = np.zeros((layers, neurons), dtype=np.int64) if labels is None else labels
    rows = []
    for row, keep, label in zip(scores, mask, groups, strict=True):
        share = module_means(keep.astype(np.float64), label)[label]
        rows.append(rank_quantile_within(row, label) - (1 - share))
    return np.stack(rows)
