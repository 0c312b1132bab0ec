"""Round the FFN widths of a baseline to multiples of a block, by the margins of its neurons."""

from dataclasses import replace

import numpy as np

from gprune.pruning.ranking import module_means, rank_quantile_within
from gprune.records import Array, ModelShape, PruningMasks, budget


def align_widths(masks: PruningMasks, margins: Array, shape: ModelShape, alignment: int) -> PruningMasks:
    """Return the masks with FFN widths rounded to multiples of `alignment`; an alignment of 1 changes nothing.

    The neurons nearest the cut are added or removed first. `margins` is (layers, neurons): the distance of a neuron
    from the cut, positive if it was kept.
    """
    if alignment == 1:
        return masks
    ffn = budget.meet_target(shape, masks.ffn, masks.heads, margins, masks.target, alignment)
    return replace(masks, ffn=ffn, retention=budget.retention(shape, ffn, masks.heads))


def margin(scores: Array, mask: Array, labels: Array | None = None) -> Array:
    """Return the (layers, neurons) distance of each neuron from the cut of its group, in [-1, 1].

    The distance is the rank quantile within the group minus the removed share of the group, so every cut is at 0
    and layers are comparable. `labels` (layers, neurons) are groups that were cut separately; None if a layer was
    cut as one group.
    """
    layers, neurons = scores.shape
    groups = np.zeros((layers, neurons), dtype=np.int64) if labels is None else labels
    rows = []
    for row, keep, label in zip(scores, mask, groups, strict=True):
        share = module_means(keep.astype(np.float64), label)[label]
        rows.append(rank_quantile_within(row, label) - (1 - share))
    return np.stack(rows)
