"""FANG's allocation: one pruning ratio per layer, applied to each functional group except the shared one.

A baseline of section 4, without its weight reconstruction. Layers that change their input more are pruned less.
"""

import numpy as np

from gprune.pruning.allocation import uniform
from gprune.records import Array, ModelShape, Partition, PruningMasks, UnitScores, budget

STRENGTH = 0.5
"""the ratios of the layers span 2 * STRENGTH times the overall pruning ratio (FANG: 0.5)"""


def layer_ratios(layer_change: Array, target: float) -> Array:
    """Return the pruned share of each layer, (layers,) in [0, 1], with mean 1 - target.

    Ratios fall linearly with the layer's change and span 2 * STRENGTH times the mean ratio. Ratios outside [0, 1]
    are clipped; the others are shifted by one amount that restores the mean. `layer_change` (layers,) is the mean
    of 1 - cosine similarity between a layer's input and output.
    """
    change = np.asarray(layer_change, dtype=np.float64)
    pruned = 1 - target
    value_range = np.ptp(change)
    scaled = (change - change.min()) / (value_range if value_range > 0 else 1.0) * 2 * STRENGTH * pruned
    # only differences between layers matter here: the shift restores the mean
    return _shift_to_sum(-scaled, 0.0, 1.0, pruned * len(change))


def allocate(
    scores: UnitScores,
    groups: Partition,
    layer_change: Array,
    shape: ModelShape,
    target: float,
    equal: uniform.Counts | None = None,
) -> PruningMasks:
    """Return masks that prune each layer and its functional groups at the ratio of `layer_ratios`.

    The number of key/value groups is rounded first; neurons fill the remaining budget. The shared group (the
    last label of a layer) loses neurons only after all other groups are empty. If `equal` is set, every layer keeps
    these numbers of neurons and key/value groups instead.

    Neurons are scored by twFLAP with the groups as modules, heads by FLAP. Every layer keeps at least one neuron and
    one key/value group, at the expense of the other layers. The kept weights meet the target to within one neuron,
    unless these minimums alone exceed it.
    """
    shared = int((groups.labels == groups.labels.max()).sum(axis=1).max())
    kept_groups, kept_neurons = unit_counts(layer_ratios(layer_change, target), shape, target, shared)
    if equal is not None:
        kept_neurons, kept_groups = (np.full(shape.layers, count) for count in equal)
    layers = range(shape.layers)
    ffn = [_keep_by_group(scores.ffn[layer], groups.labels[layer], int(kept_neurons[layer])) for layer in layers]
    heads = [budget.highest(scores.heads[layer], int(kept_groups[layer])) for layer in layers]
    return uniform.build_masks(shape, np.stack(ffn), np.stack(heads), target, "fang")


def unit_counts(ratios: Array, shape: ModelShape, target: float, shared: int) -> tuple[Array, Array]:
    """Return (layers,) numbers of key/value groups and of neurons to keep, at least one of each per layer.

    `ratios` (layers,) are pruned shares, and `shared` is the number of neurons in the shared group of a layer.
    """
    # retention with one group and one neuron in every layer
    smallest = (shape.group_weights + shape.neuron_weights) * shape.layers / shape.decoder_weights
    shares = _shift_to_sum(1 - ratios, smallest, 1.0, target * shape.layers)
    counts = [budget.uniform_counts(shape, float(share)) for share in shares]
    groups, neurons = (np.array(part) for part in zip(*counts, strict=True))
    ffn_weights = target * shape.decoder_weights - int(groups.sum()) * shape.group_weights
    total = budget.nearest_whole(ffn_weights / shape.neuron_weights)
    total = min(max(total, shape.layers), shape.layers * shape.neurons)
    # the shared group is kept whole if the budget can hold it in every layer
    minimum = shared if total >= shape.layers * shared else 1
    return groups, _round_to_sum(_shift_to_sum(neurons, float(minimum), float(shape.neurons), float(total)), total)


def _shift_to_sum(values: Array, low: float, high: float, total: float) -> Array:
    """Return the values shifted by one amount and clipped to [low, high], so that their sum is near `total`."""
    shifts = np.sort(np.concatenate([low - values, high - values]))
    # the sum is piecewise linear in the shift, with a kink where a value is clipped
    sums = np.clip(values + shifts[:, None], low, high).sum(axis=1)
    return np.clip(values + np.interp(total, sums, shifts), low, high)


def _round_to_sum(quotas: Array, total: int) -> Array:
    """Return (parts,) quotas rounded to integers that sum to `total`, by the largest-remainder method."""
    counts = np.floor(quotas).astype(np.int64)
    order = np.argsort(counts - quotas, kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def _keep_by_group(scores: Array, labels: Array, count: int) -> Array:
    """Return (neurons,) bool, True for the `count` kept neurons of a layer; each group keeps its highest scores."""
    # the last group is the shared one, which is pruned only if the others are empty
    kept_counts = np.bincount(labels)
    sizes = kept_counts[:-1].copy()
    pruned = min(len(scores) - count, int(sizes.sum()))
    kept_counts[:-1] -= _round_to_sum(sizes * pruned / sizes.sum(), pruned)
    kept_counts[-1] = count - int(kept_counts[:-1].sum())
    mask = np.zeros(len(scores), dtype=bool)
    for group, kept_count in enumerate(kept_counts):
        members = np.flatnonzero(labels == group)
        mask[members] = budget.highest(scores[members], int(kept_count))
    return mask
