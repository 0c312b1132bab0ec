"""From thresholds to masks that meet the retention target exactly (section 3.3), without torch.

One shift, common to all thresholds, brings the hard masks to the target; since a key/value group is a coarse
unit, the neurons nearest their thresholds then make up the rest. Every layer keeps at least one neuron and
one key/value group; with an alignment, widths are whole blocks of neurons and a layer keeps at least one.
"""

from __future__ import annotations

import numpy as np

from gprune import budget
from gprune.ranking import rank_quantile_within
from gprune.records import Array, ModelShape, Partition, PruningMasks


def masks(
    shape: ModelShape,
    scores: Array,
    head_scores: Array,
    partition: Partition,
    thresholds: Array,
    head_thresholds: Array,
    target: float,
    alignment: int = 1,
) -> PruningMasks:
    """The masks that thresholds give on some scores, without learning anew.

    Args:
        shape: sizes of the decoder.
        scores: (layers, neurons) importance scores, higher = more important.
        head_scores: (layers, key/value groups) importance scores.
        partition: modules of the neurons.
        thresholds: (modules,) thresholds in rank-quantile space, as a Learning has them.
        head_thresholds: (layers,) thresholds of the key/value groups.
        target: R*, the fraction of the decoder's linear weights to keep.
        alignment: FFN widths are multiples of this many neurons, or the dense width.

    Returns:
        Masks as near the target as one neuron (one block of neurons) allows; with the scores, thresholds and
        target of a run, those of the run.
    """
    whole_layer = np.zeros(shape.kv_heads, dtype=np.int64)
    neurons = [rank_quantile_within(s, m) for s, m in zip(scores, partition.labels, strict=True)]
    groups = [rank_quantile_within(s, whole_layer) for s in head_scores]
    # as narrow as the quantiles that were learned with, so that ties fall alike
    ffn = np.array(neurons).astype(np.float32) - np.asarray(thresholds)[partition.global_labels]
    heads = np.array(groups).astype(np.float32) - np.asarray(head_thresholds)[:, None]
    return at_target(shape, ffn, heads, target, alignment)[0]


def at_target(
    shape: ModelShape, neuron_margin: Array, head_margin: Array, target: float, alignment: int
) -> tuple[PruningMasks, float]:
    """Shifts all thresholds together until the target is met, then adds or removes the nearest neurons.

    Args:
        shape: sizes of the decoder.
        neuron_margin: (layers, neurons) float64 quantile minus threshold.
        head_margin: (layers, key/value groups) float64 likewise.
        target: R*, the fraction of the decoder's linear weights to keep.
        alignment: neurons of a block.

    Returns:
        The masks, and the shift that all thresholds have in common.
    """
    least = budget.least_neurons(shape, alignment)
    shift = _common_shift(shape, neuron_margin, head_margin, target, least)
    kept_heads = budget.keep_one(head_margin >= shift, head_margin)
    kept_heads = _feasible_heads(shape, head_margin, kept_heads, target, least)
    kept_neurons = neuron_margin >= shift
    kept_neurons = budget.align(shape, kept_neurons, kept_heads, neuron_margin, target, alignment)
    made = PruningMasks(
        method="gprune",
        ffn=kept_neurons,
        heads=kept_heads,
        retention=budget.retention(shape, kept_neurons, kept_heads),
        target=target,
    )
    return made, shift


def _common_shift(shape: ModelShape, neurons: Array, heads: Array, target: float, least: int) -> float:
    """A margin between the units kept and those removed when the floors and the target are respected."""
    margin = np.concatenate([_floors_first(neurons, least).ravel(), _floors_first(heads, 1).ravel()])
    price = np.repeat([shape.neuron_weights, shape.group_weights], [neurons.size, heads.size])
    order = np.argsort(-margin, kind="stable")
    kept = np.cumsum(price[order])
    # Units of equal margin go together: only the last of each run is a place to cut.
    ends = np.flatnonzero(np.append(margin[order][:-1] > margin[order][1:], True))
    cut = ends[np.abs(kept[ends] - target * shape.decoder_weights).argmin()]
    above, below = margin[order[cut]], margin[order][cut + 1 :]
    # nothing but the floors is to stay: the shift goes above every margin
    if not np.isfinite(above):
        return float(np.nextafter(max(neurons.max(), heads.max()), np.inf))
    return float((above + below[0]) / 2 if below.size else above)


def _floors_first(margin: Array, least: int) -> Array:
    """(layers, units) margins with the best ``least`` units of each layer, which always stay, at infinity."""
    raised = np.array(margin)
    best = np.argsort(-margin, axis=1, kind="stable")[:, :least]
    np.put_along_axis(raised, best, np.inf, axis=1)
    return raised


def _feasible_heads(shape: ModelShape, margin: Array, kept: Array, target: float, least: int) -> Array:
    """Adds or removes key/value groups, nearest the threshold first, until neurons can make up the rest."""
    # margins lie between -1 and 1: raised by 2, those kept stay in their order and before all others
    order = np.argsort(-_floors_first(np.where(kept, margin + 2, margin), 1), axis=None, kind="stable")
    fewest, most = shape.layers * least, shape.layers * shape.neurons

    def missing(count: int) -> float:
        neurons = (target * shape.decoder_weights - count * shape.group_weights) / shape.neuron_weights
        return max(fewest - neurons, neurons - most, 0.0)

    start = int(np.count_nonzero(kept))
    counts = range(shape.layers, margin.size + 1)
    best = min(counts, key=lambda count: (missing(count), abs(count - start)))
    feasible = np.zeros(margin.size, dtype=bool)
    feasible[order[:best]] = True
    return feasible.reshape(margin.shape)
