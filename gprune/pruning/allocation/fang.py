"""FANG's allocation: a ratio for each layer, and the same for each functional group but the shared one.

A baseline of section 4, without its weight reconstruction. A layer that changes its input much is pruned
less.
"""

import numpy as np

from gprune.pruning.allocation import uniform
from gprune.records import Array, ModelShape, Partition, PruningMasks, UnitScores, budget

STRENGTH = 0.5
"""how far layers differ: their ratios span 2 * STRENGTH times the overall pruning ratio (FANG: 0.5)"""


def layer_ratios(layer_change: Array, target: float) -> Array:
    """Return the pruned share of each layer, (layers,) in [0, 1], of mean 1 - target.

    The ratio of a layer is the overall one, less what its change exceeds the mean change by, both scaled to a
    span of 2 * STRENGTH times the overall ratio. Ratios outside [0, 1] are clipped, and all others are
    shifted alike until the mean is the overall ratio again. `layer_change` (layers,) is the mean of 1 -
    cosine similarity of a layer's input and output.
    """
    change = np.asarray(layer_change, dtype=np.float64)
    pruned = 1 - target
    spread = np.ptp(change)
    scaled = (change - change.min()) / (spread if spread > 0 else 1.0) * 2 * STRENGTH * pruned
    return _level(-scaled, 0.0, 1.0, pruned * len(change))


def allocate(
    scores: UnitScores,
    groups: Partition,
    layer_change: Array,
    shape: ModelShape,
    target: float,
    equal: uniform.Counts | None = None,
) -> PruningMasks:
    """Prune each layer at its ratio (see `layer_ratios`), and in it every group of a context at one ratio.

    Key/value groups are chosen first, as near a layer's ratio as they come, and its neurons make up the
    difference. The shared group (the last label of a layer) is kept whole, unless the layer loses more
    neurons than all other groups hold: then those go, and the shared group gives the rest.

    Of `equal` widths every layer keeps so many neurons and key/value groups, whatever its change.

    The scores are twFLAP's under the groups, heads by FLAP. Every layer keeps a neuron and a key/value group
    at least. What these floors cost is taken from the other layers, and the kept weights are as near the
    target as one neuron allows, unless the floors alone exceed it.
    """
    shared = int((groups.labels == groups.labels.max()).sum(axis=1).max())
    kept_groups, kept_neurons = counts(layer_ratios(layer_change, target), shape, target, shared)
    if equal is not None:
        kept_neurons, kept_groups = (np.full(shape.layers, count) for count in equal)
    layers = range(shape.layers)
    ffn = [_keep(scores.ffn[layer], groups.labels[layer], int(kept_neurons[layer])) for layer in layers]
    heads = [budget.highest(scores.heads[layer], int(kept_groups[layer])) for layer in layers]
    return uniform.masks(shape, np.stack(ffn), np.stack(heads), target, "fang")


def counts(ratios: Array, shape: ModelShape, target: float, shared: int) -> tuple[Array, Array]:
    """Return (layers,) key/value groups, at least one, and (layers,) neurons, at least the shared group."""
    smallest = (shape.group_weights + shape.neuron_weights) * shape.layers / shape.decoder_weights
    shares = _level(1 - ratios, smallest, 1.0, target * shape.layers)
    counts = [budget.uniform_counts(shape, float(share)) for share in shares]
    groups, neurons = (np.array(part) for part in zip(*counts, strict=True))
    ffn_weights = target * shape.decoder_weights - int(groups.sum()) * shape.group_weights
    total = budget.nearest_whole(ffn_weights / shape.neuron_weights)
    total = min(max(total, shape.layers), shape.layers * shape.neurons)
    # the shared group is kept whole if the budget can hold it in every layer
    minimum = shared if total >= shape.layers * shared else 1
    return groups, _round_to_sum(_level(neurons, float(minimum), float(shape.neurons), float(total)), total)


def _level(values: Array, low: float, high: float, total: float) -> Array:
    """Shift all values by one amount and clip them to [low, high], so that their sum is near `total`."""
    shifts = np.sort(np.concatenate([low - values, high - values]))
    # the sum is piecewise linear in the shift, with a kink where a value is clipped
    sums = np.clip(values + shifts[:, None], low, high).sum(axis=1)
    return np.clip(values + np.interp(total, sums, shifts), low, high)


def _round_to_sum(quotas: Array, total: int) -> Array:
    """Round (parts,) quotas to whole numbers that sum to `total`, by the largest remainder."""
    counts = np.floor(quotas).astype(np.int64)
    order = np.argsort(counts - quotas, kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def _keep(scores: Array, labels: Array, count: int) -> Array:
    """Return (neurons,) bool with `count` True: the highest scores of each group."""
    sizes = np.bincount(labels)
    pruned = min(len(scores) - count, int(sizes[:-1].sum()))
    left = sizes.copy()
    left[:-1] -= _round_to_sum(sizes[:-1] * pruned / sizes[:-1].sum(), pruned)
    left[-1] = count - int(left[:-1].sum())
    mask = np.zeros(len(scores), dtype=bool)
    for group, number in enumerate(left):
        members = np.flatnonzero(labels == group)
        mask[members] = budget.highest(scores[members], int(number))
    return mask
